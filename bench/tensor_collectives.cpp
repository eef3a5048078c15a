// Times of the collectives on tensors beside those on spans of the same memory, which is the tensors' own:
// both in turn, so that whatever else changes meets both alike (timed_collectives.h).
//
//   lockstep run -n 2 build/bench/tensor_collectives                  # all of them
//   lockstep run -n 2 build/bench/tensor_collectives all_reduce 8     # some
#include <ATen/ATen.h>

#include "bench/our_calls.h"
#include "bench/timed_collectives.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/tensor/collectives.h"

namespace {

using namespace lockstep;  // NOLINT(google-build-using-namespace)

std::span<float> span_of(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

void call_on_tensors(const bench::Case& which, const at::Tensor& input, const at::Tensor& output) {
  if (which.verb == "barrier") barrier();
  if (which.verb == "all_reduce") all_reduce(input);
  if (which.verb == "reduce_scatter") reduce_scatter_tensor(output, input);
  if (which.verb == "broadcast") broadcast(input, 0);
  if (which.verb == "all_gather") all_gather_into_tensor(output, input);
  if (which.verb == "all_to_all") all_to_all_single(output, input);
  if (which.verb == "send" && get_rank() == 0) send(input, 1);
  if (which.verb == "send" && get_rank() == 1) recv(input, 0);
}

void time_both(const bench::Case& which) {
  const bench::Ours ours;
  const bench::Counts counts = bench::counts_of(which, ours.size());
  const at::Tensor input = at::zeros({static_cast<std::int64_t>(counts.input)});
  const at::Tensor output = at::zeros({static_cast<std::int64_t>(counts.output)});
  const std::span<float> in = span_of(input);
  const std::span<float> out = span_of(output);
  bench::Moments spans;
  bench::Moments tensors;
  for (std::size_t round = 0; round < bench::rounds_of(which); ++round) {
    bench::time_call(ours, in, spans, [&] { ours.call(which, in, out); });
    bench::require_right(which, bench::is_right(which, ours.rank(), ours.size(), in, out));
    bench::time_call(ours, in, tensors, [&] { call_on_tensors(which, input, output); });
    bench::require_right(which, bench::is_right(which, ours.rank(), ours.size(), in, out));
  }
  bench::report(ours, which, "span", std::move(spans));
  bench::report(ours, which, "tensor", std::move(tensors));
}

}  // namespace

int main(int argc, char** argv) {
  init_process_group();
  for (const bench::Case& which : bench::cases_of(std::span(argv + 1, argv + argc))) time_both(which);
}
