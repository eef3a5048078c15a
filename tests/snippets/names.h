// What the examples of the public headers take for granted: a model, a loader, tensors, a group. Declared,
// never defined, because the examples are compiled and not linked.
#pragma once

#include <torch/data.h>
#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/utils.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/lockstep.h"

// A local name that hides one of these is what every example does.
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wunused-value"
#pragma GCC diagnostic ignored "-Wunused-function"

namespace snippets {

using namespace lockstep;
namespace dist = lockstep;
using namespace std::chrono_literals;
using torch::nn::functional::cross_entropy;
using torch::nn::functional::mse_loss;

struct SimpleCNNImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& images);
};
TORCH_MODULE(SimpleCNN);
using Net = SimpleCNN;

extern SimpleCNN net;
extern DistributedDataParallel<SimpleCNNImpl> ddp;
extern torch::optim::Adam optimizer;
extern MNIST train;
extern DistributedSampler sampler;
extern DataLoader<MNIST&> loader;
extern Batch batch;
extern at::Tensor tensor, x, y, w, b, loss, images, gradient, weights, biases;
at::Tensor loss_of(const at::Tensor& output);
void step(const at::Tensor& data, const at::Tensor& target);

extern ProcessGroup group;
extern int rank, seed, epoch, index;
extern std::string option_data, folder;
extern std::vector<std::int64_t> indices;

}  // namespace snippets
