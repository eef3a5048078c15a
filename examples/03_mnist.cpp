// Trains SimpleCNN on MNIST with any number of processes. What `./train` runs; data-parallel training on one
// page.
//
//   build/lockstep run -n 2 build/examples/mnist --epochs 2
//   build/examples/mnist --checkpoint-dir runs/7 --resume      # on one process; goes on where it was stopped
//   build/lockstep run -n 8 --no-affinity build/examples/mnist --device cuda      # on eight GPUs
//
// The lines marked with * are what makes it distributed.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "examples/mnist_job.h"
#include "lockstep/base/str.h"

namespace dist = lockstep;
using dist::str;

namespace {

// One pass over what is left of this rank's share of the images.
template <typename Loader>
void train_epoch(dist::DistributedDataParallel<SimpleCNNImpl>& ddp, torch::optim::Adam& optimizer,
                 Loader& loader, Checkpoints& checkpoints, MnistProgress& run, dist::Progress& progress) {
  const torch::Device device = ddp->parameters().front().device();
  auto start = std::chrono::steady_clock::now();
  for (auto& batch : loader) {
    optimizer.zero_grad();
    const auto output = ddp->forward(batch.data.to(device));
    auto loss = torch::nn::functional::cross_entropy(output, batch.target.to(device));
    loss.backward();  // gradients are averaged over the ranks while it runs
    optimizer.step();
    const auto count = batch.target.size(0);
    run.loss_sum += loss.template item<double>() * static_cast<double>(count);
    run.images += static_cast<double>(count);
    run.seconds += seconds_since(std::exchange(start, std::chrono::steady_clock::now()));
    progress.step(loss.template item<double>(), count * dist::get_world_size());
    checkpoints.after_step();
  }
}

// Whether all ranks hold the same bits; rank 0 saves the model and says so.
bool save_and_report(const MnistOptions& options, SimpleCNNImpl& net, nlohmann::json summary,
                     dist::MetricsFile& metrics, dist::Progress& progress) {
  const std::string sha256 = dist::parameters_sha256(net.named_parameters().pairs());
  const bool identical = dist::all_ranks_hold(sha256);  // *
  progress.say(str(identical ? "all ranks hold bit-identical parameters, sha256 "
                             : "PARAMETERS DIFFER BETWEEN RANKS, sha256 of rank 0 ",
                   sha256));
  if (dist::get_rank() == 0) {  // *
    for (const std::string name : {"/model.safetensors", "/model.pt"}) {
      dist::save_state_dict(net, options.save_dir + name);
      progress.say("saved " + options.save_dir + name);
    }
    summary["parameters_identical"] = identical;
    summary["parameters_sha256"] = sha256;
    metrics.write(summary);
  }
  return identical;
}

// Whether all ranks end with the same parameters.
template <dist::Dataset Images>
bool train_on(const Images& train, const dist::MNIST& test, const std::string& dataset,
              const MnistOptions& options) {
  const int rank = dist::get_rank();
  const int ranks = dist::get_world_size();
  torch::manual_seed(options.seed);
  SimpleCNN net;
  const torch::Device device(options.device);  // "cuda" is this rank's, since init_process_group
  net->to(device);
  dist::DistributedDataParallel ddp(net);  // *
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(options.lr));
  dist::DistributedSampler sampler(train.size(), {.seed = options.seed});  // *
  auto loader =
      dist::make_data_loader(train, sampler, {.batch_size = options.batch_size, .workers = options.workers});

  MnistProgress run;
  Checkpoints checkpoints(options.checkpoints);
  add_to(checkpoints.state, net, optimizer, sampler, run);
  const std::string from = checkpoints.resume();
  dist::MetricsFile metrics(rank == 0 ? options.metrics : "", run.metrics);
  std::FILE* out = rank == 0 ? stdout : nullptr;
  dist::Progress progress(out, {.total_steps = options.epochs * loader.size(),
                                .first_step = checkpoints.step(),
                                .unit = "images",
                                .columns = dist::terminal_columns_for_rank_0()});
  progress.say(str("SimpleCNN on ", dataset, ": ", train.size(), " images, ", ranks, " process(es), ",
                   options.batch_size, " images per process and step",
                   from.empty() ? "" : "; goes on from " + from));
  JobResult job;
  for (; run.epoch < options.epochs; ++run.epoch, run.loss_sum = run.images = run.seconds = 0) {
    sampler.set_epoch(run.epoch);  // *
    set_learning_rate(optimizer, options, run.epoch);
    train_epoch(ddp, optimizer, loader, checkpoints, run, progress);
    dist::Metrics sums;
    sums.add_sum("loss", run.loss_sum).add_sum("images", run.images);
    sums.add_sum("correct", static_cast<double>(count_correct(*net, test, rank, ranks)));
    auto totals = sums.across_ranks();  // *
    const double loss = totals["loss"] / totals["images"];
    const double speed = totals["images"] / run.seconds;
    job.test_accuracy = totals["correct"] / static_cast<double>(test.size());
    run.images_per_second += speed / options.epochs;
    progress.say(epoch_line(run.epoch + 1, loss, job.test_accuracy, speed));
    metrics.write({{"epoch", run.epoch + 1},
                   {"train_loss", loss},
                   {"test_accuracy", job.test_accuracy},
                   {"images_per_second", speed}});
    metrics.sync();  // the next checkpoint counts on it
    run.metrics = metrics.size();
  }
  job.images_per_second = run.images_per_second;
  nlohmann::json summary = {{"processes", ranks},
                            {"dataset", dataset},
                            {"epochs", options.epochs},
                            {"test_accuracy", job.test_accuracy},
                            {"images_per_second", job.images_per_second}};
  const bool identical = save_and_report(options, *net, std::move(summary), metrics, progress);
  if (options.compare && rank == 0) progress.say(compare_with_one_process(options, train, test, *net, job));
  return identical;
}

void run(const MnistOptions& options) {
  dist::init_process_group(options.device == "cuda" ? "nccl" : "auto");  // *
  const dist::FoundMnist found =
      dist::find_mnist_on_all_ranks({.directory = options.data,
                                     .dataset = options.dataset,
                                     .checkout = LOCKSTEP_SOURCE_DIR,
                                     .say = [](const std::string& line) { std::puts(line.c_str()); }});
  const dist::MNIST train(found.directory, dist::Split::TRAIN);
  const dist::MNIST test(found.directory, dist::Split::TEST);
  const bool identical = options.crop_padding > 0
                             ? train_on(moved_images(train, options), test, found.dataset, options)
                             : train_on(train, test, found.dataset, options);
  dist::destroy_process_group();
  if (!identical) throw std::runtime_error("the ranks' parameters differ");
}

}  // namespace

int main(int argc, char** argv) {
  const MnistOptions options = parse_mnist_options(argc, argv);
  return exit_code_of([&] { run(options); });
}
