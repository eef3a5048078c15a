// A model of bench/train_step.cpp, besides examples/simple_cnn.h and lockstep/models/resnet.h;
// bench/peers/train_step.py has the same in Python.
#pragma once

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

// Six linear layers of 2048 x 2048 and a head, 25 million parameters: little to compute for each byte of
// gradients.
struct MLPImpl : torch::nn::Module {
  torch::nn::Sequential layers;

  MLPImpl() {
    for (int i = 0; i < 6; ++i) {
      layers->push_back(torch::nn::Linear(2048, 2048));
      layers->push_back(torch::nn::ReLU());
    }
    layers->push_back(torch::nn::Linear(2048, 10));
    register_module("layers", layers);
  }

  // (batch, 2048) float32 to (batch, 10) logits.
  torch::Tensor forward(const torch::Tensor& x) { return layers->forward(x); }
};
TORCH_MODULE(MLP);
