// The bytes that the model states of a training take on each rank: parameters, gradients and optimiser state,
// under data parallelism and the three stages of ZeRO. Pure.
//
//   const StateSetting setting{.parameters = 7.5e9,
//                              .bytes = bytes_per_parameter({"bf16", 2, 2, 4}, {"adamw", 2}),
//                              .nodes = 8, .ranks_per_node = 8};
//   state_row(setting, StateForm::PRIVATE, ZeroStage::THREE).total();    // 1.875e9
//
// P is the number of parameters. p, g and K are the bytes of one parameter, its gradient and its optimiser
// state. There are M nodes of N ranks, W = M N. l is the number of parameters of the layer that is computed
// at the moment:
//
//            PRIVATE, each rank has memory of its own      SHARED, the ranks of a machine share memory
//   ddp      p P        g P          K P                   as PRIVATE
//   stage 1  p P        g P          K P/W                 p P/N                    g P          K P/W
//   stage 2  p P        g P/W + g l  K P/W                 p P/N                    g P/W + g l  K P/W
//   stage 3  p P/W + p l  g P/W + g l  K P/W               p P/W + p l/N (M > 1)    g P/W + g l  K P/W
//
// The parts with l are `live`; a single rank has none. A rank of SHARED counts the N-th part of what its
// machine has once, as the kernel's Pss does.
//
// Source      Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
//             2020, arXiv 1910.02054, section 3, for PRIVATE with l = 0. Stage 3's (p + g) l is DeepSpeed's
//             "largest layer".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::cli {

struct StatePrecision {
  std::string_view name;
  double parameters;  // bytes of a parameter
  double gradients;
  double masters;  // bytes of its float32 copy, which the optimiser steps
};

struct StateOptimizer {
  std::string_view name;
  double moments;  // number of float32 values that the optimiser keeps for a parameter
};

inline constexpr std::array PRECISIONS =
    std::to_array<StatePrecision>({{"fp32", 4, 4, 0}, {"bf16", 2, 2, 4}, {"fp16", 2, 2, 4}});
inline constexpr std::array OPTIMIZERS = std::to_array<StateOptimizer>(
    {{"sgd", 0}, {"momentum", 1}, {"adam", 2}, {"adamw", 2}, {"lamb", 2}, {"lars", 1}});

struct StateBytes {
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;
};

StateBytes bytes_per_parameter(const StatePrecision& precision, const StateOptimizer& optimizer);

enum class StateForm { PRIVATE, SHARED };
enum class ZeroStage { DDP, ONE, TWO, THREE };

// "ddp", "stage 1".
std::string_view name_of(ZeroStage stage);

struct StateSetting {
  double parameters = 0;
  StateBytes bytes;  // of one
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;
  double live = 0;         // parameters
  double buffers = 0;      // bytes of each rank besides its states and activations
  double activations = 0;  // bytes of each rank

  std::int64_t ranks() const { return nodes * ranks_per_node; }
};

// Bytes of each rank.
struct StateRow {
  StateForm form = StateForm::PRIVATE;
  ZeroStage stage = ZeroStage::DDP;
  double parameters = 0;
  double gradients = 0;
  double optimizer = 0;
  double live = 0;
  double buffers = 0;
  double activations = 0;

  double total() const { return parameters + gradients + optimizer + live + buffers + activations; }
};

StateRow state_row(const StateSetting& setting, StateForm form, ZeroStage stage);

// Returns the smallest number of ranks, above the setting's, with which a rank has at most `memory` bytes.
// For SHARED it is a multiple of ranks_per_node. nullopt if no number is enough.
std::optional<std::int64_t> ranks_that_fit(const StateSetting& setting, StateForm form, ZeroStage stage,
                                           double memory);

}  // namespace lockstep::cli
