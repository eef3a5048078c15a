// The errors of the library. Every failure that it reports is one of these exceptions, and a program may
// catch any of them.
//
//   try {
//     dist::all_reduce(tensor);
//   } catch (const dist::PeerLost& lost) {   // rank lost.peer() is gone; save what can be saved
//   } catch (const dist::Error& error) {     // any other error of Lockstep
//   }
//
// An error of a collective names rank, group, operation, sequence number, the expected state and the remedy:
//
//   all_reduce #118 on group "world", rank 2 of 4: rank 3 (pid 4121) ended before it took part; the group
//   is closed.
//
// Exceptions of libtorch (c10::Error) pass through unchanged. Nothing here prints.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

enum class ErrorCode : std::uint32_t {
  NONE = 0,
  INVALID_ARGUMENT,  // the caller's mistake, found before anything was sent
  TIMEOUT,           // no progress within the deadline
  PEER_LOST,         // a rank died, left, or closed its connection
  MISMATCH,          // ranks called different operations, or with different dtypes, counts, ops or roots
  ABORTED,           // the group was aborted or closed by this program
  STORE,             // rendezvous or key-value store
  FORMAT,            // the contents of a file do not have the expected format
  SYSTEM,            // the operating system refused; errno is kept
  INTERNAL,          // a bug of Lockstep
  SPAWN,             // a process that spawn() started has failed
  BACKEND,           // the library that moves a backend's bytes (NCCL) reported an error
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

class InvalidArgument : public Error {
 public:
  explicit InvalidArgument(const std::string& message) : Error(ErrorCode::INVALID_ARGUMENT, message) {}
};

class Timeout : public Error {
 public:
  explicit Timeout(const std::string& message) : Error(ErrorCode::TIMEOUT, message) {}
};

class PeerLost : public Error {
 public:
  PeerLost(const std::string& message, int peer) : Error(ErrorCode::PEER_LOST, message), peer_(peer) {}
  int peer() const { return peer_; }  // the rank, within the group, that the message names

 private:
  int peer_;
};

enum class MismatchKind : std::uint32_t {
  CALLS,  // ranks made different calls
  SIZES,  // ranks made the same call; sizes in their lists, which a call does not show, contradict each other
};

class Mismatch : public Error {
 public:
  explicit Mismatch(const std::string& message, MismatchKind kind = MismatchKind::CALLS)
      : Error(ErrorCode::MISMATCH, message), kind_(kind) {}
  MismatchKind kind() const { return kind_; }

 private:
  MismatchKind kind_;
};

class Aborted : public Error {
 public:
  explicit Aborted(const std::string& message) : Error(ErrorCode::ABORTED, message) {}
};

class StoreError : public Error {
 public:
  explicit StoreError(const std::string& message) : Error(ErrorCode::STORE, message) {}
};

class FormatError : public Error {
 public:
  explicit FormatError(const std::string& message) : Error(ErrorCode::FORMAT, message) {}
};

class SystemError : public Error {
 public:
  // Appends the text of `error_number` (an errno value) to the message.
  SystemError(const std::string& message, int error_number);
  // For a message that contains that text already, such as one from another rank.
  static SystemError with_message(const std::string& message, int error_number) {
    return {message, error_number, Complete()};
  }
  int error_number() const { return error_number_; }

 private:
  struct Complete {};
  SystemError(const std::string& message, int error_number, Complete /*message*/)
      : Error(ErrorCode::SYSTEM, message), error_number_(error_number) {}

  int error_number_;
};

// Quotes an error of a library below a backend, such as NCCL. The name is torch's.
class DistBackendError : public Error {
 public:
  explicit DistBackendError(const std::string& message) : Error(ErrorCode::BACKEND, message) {}
};

class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ErrorCode::INTERNAL, message) {}
};

// A process that spawn() started threw, was killed or exited with another code than 0.
class SpawnError : public Error {
 public:
  SpawnError(const std::string& message, int rank, long pid)
      : Error(ErrorCode::SPAWN, message), rank_(rank), pid_(pid) {}
  int rank() const { return rank_; }
  long pid() const { return pid_; }

 private:
  int rank_;
  long pid_;
};

// Throws the error class that belongs to `code`. `peer` is used by PEER_LOST only.
[[noreturn]] void throw_error(ErrorCode code, const std::string& message, int peer = -1);

}  // namespace lockstep
