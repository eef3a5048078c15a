#include "lockstep/launch/rank_process.h"

#include <cerrno>

#include "lockstep/os/pipe.h"

namespace lockstep {

RankProcess::RankProcess(int rank, const RankStart& start, Fd log)
    : rank_(rank),
      sources_{Source{Stream::OUT, {}, {}}, Source{Stream::ERR, {}, {}}},
      log_(std::move(log)),
      kept_(start.kept) {
  Pipe out = make_pipe();
  Pipe err = make_pipe();
  SpawnRequest request;
  request.executable = start.executable;
  request.arguments = start.command;
  request.environment = start.environment;
  request.standard_input = start.standard_input;
  request.standard_output = out.write.get();
  request.standard_error = err.write.get();
  request.inherited = start.inherited;
  request.cpus = start.cpus;
  request.signal_mask = start.signal_mask;
  child_ = spawn(request);
  set_nonblocking(out.read.get());
  set_nonblocking(err.read.get());
  sources_[0].pipe = std::move(out.read);
  sources_[1].pipe = std::move(err.read);
}

void RankProcess::add_to(PollSet& wait) const {
  if (child_.exec_report.valid()) wait.want_read(child_.exec_report.get());
  for (const auto& source : sources_) {
    if (source.pipe.valid()) wait.want_read(source.pipe.get());
  }
}

std::optional<int> RankProcess::start_error(const PollSet& wait) {
  if (!child_.exec_report.valid() || !wait.is_ready(child_.exec_report.get())) return std::nullopt;
  const int error = exec_error(child_);
  child_.exec_report.reset();
  return error == 0 ? std::nullopt : std::optional<int>(error);
}

void RankProcess::read_output(const PollSet& wait, const OnOutput& on_output) {
  for (auto& source : sources_) {
    if (source.pipe.valid() && wait.is_ready(source.pipe.get())) read_source(source, on_output);
  }
}

void RankProcess::drain_output(const OnOutput& on_output) {
  for (auto& source : sources_) {
    while (source.pipe.valid() && read_source(source, on_output)) {
    }
    end_source(source, on_output);
  }
}

bool RankProcess::read_source(Source& source, const OnOutput& on_output) {
  std::string bytes;
  const ReadResult result = read_available(source.pipe.get(), bytes);
  if (result == ReadResult::END) end_source(source, on_output);
  if (result != ReadResult::MORE) return false;
  write_log(source.stream, bytes);
  last_lines_.feed(source.unfinished, bytes);
  on_output(rank_, source.stream, bytes);
  return true;
}

void RankProcess::end_source(Source& source, const OnOutput& on_output) {
  if (!source.pipe.valid()) return;
  source.pipe.reset();
  if (!source.unfinished.empty()) last_lines_.add(source.unfinished);
  source.unfinished.clear();
  on_output(rank_, source.stream, {});
}

void RankProcess::write_log(Stream stream, std::string_view bytes) {
  if ((kept_ & (stream == Stream::OUT ? StreamChoice::OUT : StreamChoice::ERR)) == 0) return;
  while (log_.valid() && !bytes.empty()) {
    const long put = write_available(log_.get(), bytes);
    if (put < 0) {  // a full disk must not stop the job: the console still gets the lines
      log_error_ = errno;
      log_.reset();
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
}

std::optional<ExitStatus> RankProcess::poll() {
  if (ended_) return std::nullopt;
  const auto status = poll_exit(pid());
  ended_ = status.has_value();
  return status;
}

void RankProcess::signal_group(int signal) const {
  if (!ended_) signal_process_group(pid(), signal);
}

}  // namespace lockstep
