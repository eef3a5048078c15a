// OutputMux: turns the bytes that many ranks print into lines that name their rank. Pure.
//
//   OutputMux mux({.prefix = true}, [](Stream stream, std::string_view text) { ... });
//   mux.feed(3, Stream::OUT, "epoch 1\nepo");     // emits "[3] epoch 1\n"
//   mux.close(3, Stream::OUT);                    // emits "[3] epo\n"
//   mux.launcher_line("rank 2 failed");           // emits "lockstep: rank 2 failed\n" to Stream::ERR
//
// Lines of different ranks never mix. On a terminal the unfinished line of rank 0 (a progress line, a
// question) is shown at once, cut to the terminal's width. It is erased before any other line and drawn again
// after it:
//
//   [0] epoch 1 step 40 loss 0.31          <- redrawn in place, as often as rank 0 writes "\r..."
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

enum class Stream { OUT, ERR };

struct OutputMuxOptions {
  bool prefix = true;
  int first_rank = 0;  // the number that is printed for rank 0
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  std::size_t columns = 80;  // of the terminal
};

class OutputMux {
 public:
  using Emit = std::function<void(Stream, std::string_view)>;

  OutputMux(const OutputMuxOptions& options, Emit emit) : options_(options), emit_(std::move(emit)) {}

  void feed(int rank, Stream stream, std::string_view bytes);
  void close(int rank, Stream stream);  // the rank's stream has ended: the rest of a line becomes a line
  void launcher_line(std::string_view text);

  // A longer line is broken here, because a rank that never prints a newline must not fill the launcher's
  // memory.
  static constexpr std::size_t LONGEST_LINE = 1U << 20U;

 private:
  using Key = std::pair<int, Stream>;

  std::string prefix_of(int rank) const;
  bool is_terminal(Stream stream) const {
    return stream == Stream::OUT ? options_.out_is_terminal : options_.err_is_terminal;
  }
  void emit_line(int rank, Stream stream, std::string_view line);
  void hide_unfinished();
  void show_unfinished(Stream stream);

  OutputMuxOptions options_;
  Emit emit_;
  std::map<Key, std::string> unfinished_;
  bool is_shown_ = false;  // an unfinished line of rank 0 is on the terminal
  Stream shown_on_ = Stream::OUT;
};

}  // namespace lockstep
