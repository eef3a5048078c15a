// The whole library, from an installed package: a job of one process takes a step with a wrapped model.
#include <lockstep/lockstep.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

int main() {
  lockstep::init_process_group();
  torch::nn::Linear model(3, 1);
  lockstep::DistributedDataParallel ddp(model);
  torch::optim::SGD optimizer(model->parameters(), 0.5);
  const auto before = model->bias.detach().clone();
  ddp->forward(torch::ones({4, 3})).mean().backward();  // the bias has gradient 1
  optimizer.step();
  lockstep::destroy_process_group();
  return torch::allclose(model->bias, before - 0.5) ? 0 : 1;
}
