// The interface of lockstep_mpi_openmpi.so and lockstep_mpi_mpich.so. The library links no MPI, and opens one
// of the modules (mpi/library.h). The modules are mpi/module.cpp, compiled by the compiler wrapper of each
// MPI. They link nothing of Lockstep, so this header stands alone.
//
//   Module& module = *reinterpret_cast<Module*(*)()>(dlsym(handle, MODULE_ENTRY))();
//   if (const std::string wrong = module.start(deadline); !wrong.empty()) throw Aborted(wrong);
//   // ranks of the communicator
//   std::unique_ptr<Streams> streams = module.open(module.world(), tag, {0, 2, 3});
//
// Threads: any. One lock surrounds every call of MPI. So MPI_THREAD_SERIALIZED is enough where the module
// initialises MPI. A program that calls MPI itself needs MPI_THREAD_MULTIPLE.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::mpi {

inline constexpr const char* MODULE_ENTRY = "lockstep_mpi_module_2";  // changes with every change below

// A stream of bytes to and from every member, as messages of one tag.
class Streams {
 public:
  struct Ready {
    int member = 0;
    bool readable = false;
    bool writable = false;
  };
  struct Moved {
    std::size_t bytes = 0;
    std::string broken;  // the reason why no more bytes will pass
  };

  Streams() = default;
  // Does not wait. A packet under way keeps its memory.
  virtual ~Streams() = default;
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // Copies as much as there is room for; 0 bytes means none now.
  virtual Moved send(int member, const std::array<std::span<const std::byte>, 2>& parts) = 0;
  virtual Moved receive(int member, std::span<std::byte> buffer) = 0;
  // Returns whether MPI has sent everything, so that this process may end.
  virtual bool flushed(int member) = 0;
  virtual void want_write(int member, bool wanted) = 0;
  virtual void close(int member) = 0;
  // Lets MPI make progress. Returns the members that can be read, and those that can be written to where that
  // is wanted.
  virtual std::vector<Ready> progress() = 0;
};

// A communicator of MPI that belongs to Lockstep.
class Communicator {
 public:
  Communicator() = default;
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Opens streams between these ranks of the communicator; this rank has no stream to itself. No other
  // streams may use the tag, which is from 0 to 32767.
  virtual std::unique_ptr<Streams> open(int tag, const std::vector<int>& ranks) = 0;
};

// How long a call of a module may wait. The library measures it, so that all its waits share one clock.
class Patience {
 public:
  // Sleeps for a moment. Returns false when the deadline has passed.
  virtual bool rest() = 0;

 protected:
  ~Patience() = default;
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // "Open MPI v4.1.4, ..."; may be called before start().
  virtual std::string library() const = 0;
  virtual std::string host_name() const = 0;
  virtual std::size_t handle_size() const = 0;  // of an MPI_Comm

  // Initialises MPI unless the program has done so; MPI is then finalised when the process ends. Returns ""
  // or what is wrong.
  virtual std::string start() = 0;
  // The same for a program that passes a communicator, and so has initialised MPI.
  virtual std::string start_in_host() = 0;
  // Return the duplicate of MPI_COMM_WORLD; of the program's MPI_Comm at `handle`; of a communicator of
  // Fortran. Each communicator is duplicated once, and duplicates are never freed. Collective over the
  // communicator's ranks. Null when the deadline has passed, or when MPI refused, with the reason in `error`.
  virtual std::shared_ptr<Communicator> world(Patience& patience, std::string& error) = 0;
  virtual std::shared_ptr<Communicator> duplicate(const void* handle, Patience& patience,
                                                  std::string& error) = 0;
  virtual std::shared_ptr<Communicator> duplicate_fortran(int handle, Patience& patience,
                                                          std::string& error) = 0;
  // A group has failed. The end of this process must not wait for ranks that may never come.
  virtual void expect_no_farewell() = 0;
};

}  // namespace lockstep::mpi
