#include "lockstep/optim/norms.h"

#include "lockstep/optim/chunks.h"

namespace lockstep::optim {
namespace {

double plain_square(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble);
  return wide.mul(wide).sum().item().toDouble();
}

}  // namespace

std::vector<SquareSums> square_sums(const std::vector<NormItem>& items) {
  std::vector<SquareSums> sums(items.size());
  std::vector<KernelCall> calls;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& [param, grad, weight_decay] = items[i];
    if (const auto call = kernel_call(param, grad, {})) {
      calls.push_back(*call);
      places.push_back(i);
    } else {
      const at::Tensor p = param.to(at::kDouble);
      sums[i] = {plain_square(p), plain_square(grad.to(at::kDouble).add(p, weight_decay))};
    }
  }
  std::vector<SquareSums> parts(chunk_count(calls));
  std::vector<std::size_t> owners(parts.size());
  for_chunks(calls, [&](const Chunk& chunk) {
    owners[chunk.index] = places[chunk.call];
    step_kernels().squares(chunk.dtype, items[places[chunk.call]].weight_decay, chunk.buffers, chunk.count,
                           parts[chunk.index]);
  });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    sums[owners[i]].param += parts[i].param;
    sums[owners[i]].update += parts[i].update;
  }
  return sums;
}

void add_up(std::vector<SquareSums>& sums, const NormReducer& reducer) {
  if (reducer.is_local()) return;
  std::vector<double> flat;
  for (const SquareSums& of : sums) flat.insert(flat.end(), {of.param, of.update});
  reducer.sum(flat);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = {flat[2 * i], flat[2 * i + 1]};
}

double square_sum(const std::vector<at::Tensor>& tensors) {
  double sum = 0;
  std::vector<KernelCall> calls;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor real = real_view(tensor);
    if (const auto call = kernel_call(real)) {
      calls.push_back(*call);
    } else {
      sum += plain_square(real);
    }
  }
  std::vector<double> parts(chunk_count(calls));
  for_chunks(calls, [&](const Chunk& chunk) {
    parts[chunk.index] = step_kernels().square(chunk.dtype, chunk.buffers.grad, chunk.count);
  });
  for (const double part : parts) sum += part;
  return sum;
}

}  // namespace lockstep::optim
