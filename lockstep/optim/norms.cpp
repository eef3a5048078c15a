#include "lockstep/optim/norms.h"

#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <utility>

#include "lockstep/optim/chunks.h"

namespace lockstep::optim {
namespace {

double plain_square(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble);
  return wide.mul(wide).sum().item().toDouble();
}

// Returns, by shard, the number of chunks of the whole parameters before it, at least one each. The last
// entry is the number of all chunks.
std::vector<std::size_t> first_chunks(std::span<const NormShard> shards) {
  std::vector<std::size_t> first = {0};
  for (const NormShard& shard : shards) {
    const std::size_t chunks =
        (static_cast<std::size_t>(shard.elements) + CHUNK_ELEMENTS - 1) / CHUNK_ELEMENTS;
    first.push_back(first.back() + std::max<std::size_t>(1, chunks));
  }
  return first;
}

void add(SquareSums& to, const SquareSums& more) {
  to.param += more.param;
  to.update += more.update;
}

void add_up_shards(std::vector<SquareSums>& sums, std::span<const ChunkSquares> chunks,
                   std::span<const NormShard> shards, const NormReducer& reducer) {
  if (reducer.is_local()) {
    for (const ChunkSquares& chunk : chunks) add(sums[chunk.item], chunk.sums);
    return;
  }
  const std::vector<std::size_t> first = first_chunks(shards);
  std::vector<double> table(2 *
                            first.back());  // a chunk without elements on this rank adds zero, which is exact
  const auto put = [&](std::size_t item, std::size_t chunk, const SquareSums& squares) {
    const std::size_t own = static_cast<std::size_t>(shards[item].offset) / CHUNK_ELEMENTS + chunk;
    const std::size_t at = 2 * std::min(first[item] + own, first[item + 1] - 1);
    table[at] += squares.param;
    table[at + 1] += squares.update;
  };
  for (std::size_t i = 0; i < sums.size(); ++i) put(i, 0, std::exchange(sums[i], {}));
  for (const ChunkSquares& chunk : chunks) put(chunk.item, chunk.chunk, chunk.sums);
  reducer.sum(table);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    for (std::size_t at = first[i]; at < first[i + 1]; ++at) add(sums[i], {table[2 * at], table[2 * at + 1]});
  }
}

// Of pieces, the sums of the parameters that they are pieces of.
void add_up_pieces(std::vector<SquareSums>& sums, std::span<const NormShard> shards,
                   const NormReducer& reducer) {
  std::vector<double> table;
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (shards[i].is_piece) table.insert(table.end(), {sums[i].param, sums[i].update});
  reducer.sum(table);
  std::size_t at = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!shards[i].is_piece) continue;
    sums[i] = {table[at], table[at + 1]};
    at += 2;
  }
}

double square_sum_of_shards(const std::vector<at::Tensor>& tensors, std::span<const NormShard> shards,
                            const NormReducer& reducer) {
  if (reducer.is_local()) return square_sum(tensors);
  const std::vector<std::size_t> first = first_chunks(shards);
  std::vector<double> table(first.back());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t at = first[i] + static_cast<std::size_t>(shards[i].offset) / CHUNK_ELEMENTS;
    const auto call = kernel_call(tensors[i]);
    std::vector<double> parts(call ? chunk_count({&*call, 1}) : 1);
    if (call) {
      for_chunks({&*call, 1}, [&](const Chunk& chunk) {
        parts[chunk.index] = step_kernels().square(chunk.dtype, chunk.buffers.grad, chunk.count);
      });
    } else {
      parts[0] = plain_square(tensors[i]);
    }
    for (std::size_t chunk = 0; chunk < parts.size(); ++chunk)
      table[std::min(at + chunk, first[i + 1] - 1)] += parts[chunk];
  }
  reducer.sum(table);
  double sum = 0;
  for (const double part : table) sum += part;
  return sum;
}

}  // namespace

std::vector<SquareSums> square_sums(const std::vector<NormItem>& items, const NormRanks& ranks) {
  std::vector<SquareSums> sums(items.size());
  std::vector<NormShard> shards;
  std::vector<KernelCall> calls;
  std::vector<std::size_t> places;
  std::vector<at::Tensor> on_gpu;  // of each such item two, the parameter and its update
  std::vector<std::size_t> places_on_gpu;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto& [param, grad, weight_decay, shard] = items[i];
    shards.push_back(shard);
    if (const auto call = kernel_call(param, grad, {})) {
      calls.push_back(*call);
      places.push_back(i);
    } else if (param.is_cuda()) {
      const bool decays = weight_decay != 0;
      on_gpu.push_back(param);
      on_gpu.push_back(decays ? grad.to(at::kDouble).add(param.to(at::kDouble), weight_decay) : grad);
      places_on_gpu.push_back(i);
    } else {
      const at::Tensor p = param.to(at::kDouble);
      sums[i] = {plain_square(p), plain_square(grad.to(at::kDouble).add(p, weight_decay))};
    }
  }
  const std::vector<double> squares_on_gpu = squares_of(on_gpu);
  for (std::size_t i = 0; i < places_on_gpu.size(); ++i)
    sums[places_on_gpu[i]] = {squares_on_gpu[2 * i], squares_on_gpu[2 * i + 1]};
  std::vector<ChunkSquares> chunks(chunk_count(calls));
  for_chunks(calls, [&](const Chunk& chunk) {
    ChunkSquares& squares = chunks[chunk.index];
    squares = {.item = places[chunk.call], .chunk = chunk.begin / CHUNK_ELEMENTS, .sums = {}};
    step_kernels().squares(chunk.dtype, items[squares.item].weight_decay, chunk.buffers, chunk.count,
                           squares.sums);
  });
  add_up(sums, chunks, shards, ranks);
  return sums;
}

void add_up(std::vector<SquareSums>& sums, std::span<const ChunkSquares> chunks,
            std::span<const NormShard> shards, const NormRanks& ranks) {
  add_up_shards(sums, chunks, shards, ranks.shards);
  add_up_pieces(sums, shards, ranks.pieces);
}

std::vector<double> squares_of(const std::vector<at::Tensor>& tensors) {
  std::vector<double> squares;
  const auto is_with_the_first = [&](const at::Tensor& tensor) {
    return tensor.is_cuda() && tensor.device() == tensors.front().device();
  };
  if (tensors.empty() || !std::all_of(tensors.begin(), tensors.end(), is_with_the_first)) {
    for (const at::Tensor& tensor : tensors) squares.push_back(plain_square(tensor));
    return squares;
  }
  const at::Tensor norms = at::stack(at::_foreach_norm(tensors, 2, at::kDouble)).cpu();
  for (const double norm : std::span(norms.const_data_ptr<double>(), tensors.size()))
    squares.push_back(norm * norm);
  return squares;
}

double square_sum(const std::vector<at::Tensor>& tensors) {
  double sum = 0;
  std::vector<at::Tensor> others;
  std::vector<KernelCall> calls;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor real = real_view(tensor);
    if (const auto call = kernel_call(real)) {
      calls.push_back(*call);
    } else {
      others.push_back(real);
    }
  }
  for (const double square : squares_of(others)) sum += square;
  std::vector<double> parts(chunk_count(calls));
  for_chunks(calls, [&](const Chunk& chunk) {
    parts[chunk.index] = step_kernels().square(chunk.dtype, chunk.buffers.grad, chunk.count);
  });
  for (const double part : parts) sum += part;
  return sum;
}

double square_sum(const std::vector<at::Tensor>& tensors, std::span<const NormShard> shards,
                  const NormRanks& ranks) {
  const auto sum_where = [&](const auto& is_wanted) {
    std::vector<at::Tensor> some;
    std::vector<NormShard> places;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!is_wanted(shards[i])) continue;
      some.push_back(tensors[i]);
      places.push_back(shards[i]);
    }
    return square_sum_of_shards(some, places, ranks.shards);
  };
  if (!ranks.model.is_local()) {
    double counted = sum_where([](const NormShard& shard) { return shard.counts; });
    ranks.model.sum({&counted, 1});
    return counted;
  }
  const double whole = sum_where([](const NormShard& shard) { return !shard.is_piece; });
  if (ranks.pieces.is_local()) return whole;
  double in_pieces = sum_where([](const NormShard& shard) { return shard.is_piece; });
  ranks.pieces.sum({&in_pieces, 1});
  return whole + in_pieces;
}

}  // namespace lockstep::optim
