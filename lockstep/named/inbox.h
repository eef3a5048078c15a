// Inbox: what the threads of the program have submitted and the engine's thread has not ended yet.
//
//   inbox.add(std::span(&operation, 1));        // a program's thread; throws if a name is under way
//   const Operations fresh = inbox.take_new();  // the engine's thread
//   const Operations ready = inbox.find(responses);
//   inbox.end(ready, nullptr);                  // their names may be submitted again
//   inbox.close(failure);                       // all that is left fails; add() throws the same
//
// Threads: own lock.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/named/by_name.h"
#include "lockstep/named/negotiation.h"
#include "lockstep/named/operation.h"

namespace lockstep::named {

// Throws InvalidArgument: a name is submitted while it is under way.
[[noreturn]] void refuse_second(const Request& request);

class Inbox {
 public:
  // Returns whether the engine's thread may sleep and is to be woken.
  bool add(std::span<const std::shared_ptr<Operation>> operations);
  // "allreduce.noname.7": for a request without a name. They are numbered by kind and process set.
  std::string next_name(Kind kind, int process_set);
  Operations take_new();
  std::optional<Time> oldest_new();  // nothing: there is none
  bool has_under_way();              // whether anything was submitted and has not ended

  // One for each response; null: this rank has not submitted it.
  Operations find(const std::vector<Response>& responses);
  void end(const Operations& operations, const std::exception_ptr& failure);
  void close(const std::exception_ptr& failure);
  bool is_closed();

 private:
  // By the names of their requests. A request finds the operation of its name.
  struct Hash : NameHash {
    using NameHash::operator();
    std::size_t operator()(const std::shared_ptr<Operation>& operation) const {
      return (*this)(operation->request());
    }
  };
  struct Same {
    using is_transparent = void;
    template <typename A, typename B> bool operator()(const A& a, const B& b) const {
      return SameName()(request_of(a), request_of(b));
    }
    static const Request& request_of(const Request& request) { return request; }
    static const Request& request_of(const std::shared_ptr<Operation>& operation) {
      return operation->request();
    }
  };

  std::mutex mutex_;
  // guarded by mutex_
  Operations new_;
  Time oldest_ = {};
  std::unordered_set<std::shared_ptr<Operation>, Hash, Same> under_way_;
  std::map<std::pair<Kind, int>, std::uint64_t> nameless_;
  std::exception_ptr closed_;
};

}  // namespace lockstep::named
