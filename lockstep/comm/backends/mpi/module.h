// What lockstep_mpi_openmpi.so and lockstep_mpi_mpich.so offer to the library, which links no MPI and opens
// one of them (mpi/library.h). The modules are mpi/module.cpp, compiled by the wrapper of each MPI; they link
// nothing of Lockstep, so this header stands alone.
//
//   Module& module = *reinterpret_cast<Module*(*)()>(dlsym(handle, MODULE_ENTRY))();
//   if (const std::string wrong = module.start(deadline); !wrong.empty()) throw Aborted(wrong);
//   // ranks of the communicator
//   std::unique_ptr<Streams> streams = module.open(module.world(), tag, {0, 2, 3});
//
// Threads: any; one lock around every call of MPI, so a library that was initialised by this module needs
// MPI_THREAD_SERIALIZED, and one that the host program calls too, MPI_THREAD_MULTIPLE.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::mpi {

inline constexpr const char* MODULE_ENTRY = "lockstep_mpi_module_2";  // changes with what is below

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
    std::string broken;  // why no more will come through
  };

  Streams() = default;
  // Does not wait: what is still under way keeps its memory.
  virtual ~Streams() = default;
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  // Copies as much as there is room for; 0 bytes: not now.
  virtual Moved send(int member, const std::array<std::span<const std::byte>, 2>& parts) = 0;
  virtual Moved receive(int member, std::span<std::byte> buffer) = 0;
  // Whether all that was sent is out of this process's hands.
  virtual bool flushed(int member) = 0;
  virtual void want_write(int member, bool wanted) = 0;
  virtual void close(int member) = 0;
  // Lets MPI work and says who can be read from, or written to where that is wanted.
  virtual std::vector<Ready> progress() = 0;
};

// A communicator of MPI that is Lockstep's own.
class Communicator {
 public:
  Communicator() = default;
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Between these ranks of it; this rank has no stream to itself. The tag, from 0 to 32767, belongs to them
  // alone.
  virtual std::unique_ptr<Streams> open(int tag, const std::vector<int>& ranks) = 0;
};

// How long a call of a module may wait. The library measures it, so that all its waits share one clock.
class Patience {
 public:
  // Sleeps for a moment; false: the deadline has passed.
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

  // "Open MPI v4.1.4, ..."; works before start().
  virtual std::string library() const = 0;
  virtual std::string host_name() const = 0;
  virtual std::size_t handle_size() const = 0;  // of an MPI_Comm

  // Initialises MPI unless the program has; what is wrong, or "". If it does, MPI is finalised when the
  // process ends.
  virtual std::string start() = 0;
  // The same in a program that owns a communicator, so has initialised MPI.
  virtual std::string start_in_host() = 0;
  // The duplicate of MPI_COMM_WORLD; of a communicator of the program, `handle` pointing to its MPI_Comm; of
  // one of Fortran. Each communicator is duplicated once in its life, and the duplicates are never freed.
  // Collective over its ranks; null when the deadline has passed or, with what is wrong in `error`, MPI
  // refused.
  virtual std::shared_ptr<Communicator> world(Patience& patience, std::string& error) = 0;
  virtual std::shared_ptr<Communicator> duplicate(const void* handle, Patience& patience,
                                                  std::string& error) = 0;
  virtual std::shared_ptr<Communicator> duplicate_fortran(int handle, Patience& patience,
                                                          std::string& error) = 0;
  // A group has failed: the end of this process must not wait for ranks that may never come.
  virtual void expect_no_farewell() = 0;
};

}  // namespace lockstep::mpi
