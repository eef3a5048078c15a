"""Makes one C++ file of all examples in the README, in docs/ and in the public headers, so that the compiler reads them.

    python3 extract_snippets.py --list                 # place and first line of each example
    python3 extract_snippets.py OUTPUT_FOLDER          # snippets.cpp, and program_N.cpp for each example with an #include

An example of a header is a paragraph of its comments that is indented by three spaces and follows an empty comment line. One of a
Markdown page is a block marked ```cpp. Both count as C++ when a line of them ends a statement or opens a block. Names that an example
uses and does not declare (`net`, `loader`, `x`) come from names.h, or from FIXTURES below where one header means something else by them.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Headers that a program includes beside those that lockstep.h names: the first part of the list of those that are installed.
PUBLIC = (ROOT / "cmake/public_headers.txt").read_text().split("\n# Installed as well")[0]
ALSO_PUBLIC = [line for line in PUBLIC.split("\n") if line and not line.startswith("#")]

# What a header's examples take for granted, where names.h says something else or nothing.
FIXTURES = {
    "docs/clusters.md": "void train_step(); void save();",
    "docs/checkpoints.md": "void train_step(const Batch& batch); extern CheckpointState state; extern std::int64_t step; extern double accuracy;",
    "docs/zero_redundancy_optimizer.md": "extern ZeroRedundancyOptimizer<optim::AdamW> optimizer; extern CheckpointState state;",
    "lockstep/checkpoint/full_state_dict.h": "extern ShardedDataParallel<SimpleCNNImpl> model; extern ShardedOptimizer<optim::AdamW> optimizer; "
                                              "void log(const std::string& name, const at::Tensor& norm);",
    "lockstep/checkpoint/load_checkpoint.h": "extern CheckpointState state;",
    "lockstep/checkpoint/save_checkpoint.h": "extern CheckpointState state; void train_on();",
    "lockstep/train/metrics_file.h": "extern CheckpointState state;",
    "lockstep/train/summary_writer.h": "extern CheckpointState state;",
    "lockstep/job/rank_zero.h": "void unpack(const std::string& folder);",
    "lockstep/job/stop_signals.h": "void train_step(); void save(); extern dist::StopSignals stop;",
    "lockstep/autograd/activation_checkpoint.h": "extern torch::nn::Sequential layers; extern std::vector<torch::nn::Linear> blocks; "
                                              "extern torch::nn::Linear norm, head;",
    "lockstep/base/log.h": "void my_logger(const std::string& line);",
    "lockstep/c/handles.h": "extern ProcessGroup group; void train_in_c(lockstep_group handle);",
    "lockstep/c/lockstep.h": "void fail(const char* why);",
    "lockstep/comm/collectives/all_gather.h": "extern int mine;",
    "lockstep/comm/collectives/all_reduce.h": "extern float local_loss;",
    "lockstep/comm/collectives/all_to_all.h": "extern std::vector<float> out, in; extern std::vector<std::size_t> counts, received;",
    "lockstep/comm/collectives/broadcast.h": "extern std::vector<float> weights;",
    "lockstep/comm/collectives/coalesced.h": "extern std::vector<float> weights, biases; extern std::span<const float> mine; "
                                             "extern std::span<float> theirs; extern int next, before;",
    "lockstep/comm/collectives/gather.h": "extern int mine;",
    "lockstep/comm/collectives/objects.h": "std::string host_name();",
    "lockstep/comm/collectives/point_to_point.h": "extern std::vector<float> x;",
    "lockstep/comm/collectives/reduce.h": "extern double elapsed; void report(double seconds);",
    "lockstep/comm/collectives/reduce_scatter.h": "extern std::vector<float> gradients;",
    "lockstep/comm/collectives/scatter.h": "extern std::vector<int> all;",
    "lockstep/comm/work.h": "extern std::vector<float> gradients; void compute_something_else();",
    "lockstep/compat/apex/amp.h": "constexpr int D_in = 10, D_out = 1; using torch::nn::utils::clip_grad_norm_;",
    "lockstep/compat/apex/parallel.h": "extern std::shared_ptr<torch::nn::LinearImpl> model;",
    "lockstep/compat/deepspeed/config.h": "namespace deepspeed = lockstep::compat::deepspeed;",
    "lockstep/compat/deepspeed/client_optimizer.h": "extern torch::nn::Linear fc;",
    "lockstep/compat/deepspeed/engine.h": "extern compat::deepspeed::Engine<SimpleCNNImpl> engine; extern torch::nn::Linear fc1, fc2;",
    "lockstep/compat/horovod/basics.h": "namespace hvd = lockstep::compat::horovod; extern at::Tensor x;",
    "lockstep/compat/horovod/functions.h": "namespace hvd = lockstep::compat::horovod; extern torch::optim::Adam adam;",
    "lockstep/compat/horovod/operations.h": "namespace hvd = lockstep::compat::horovod; extern at::Tensor x; void use(const at::Tensor& tensor);",
    "lockstep/compat/horovod/optimizer.h": "namespace hvd = lockstep::compat::horovod; extern torch::optim::Adam adam; "
                                           "extern hvd::DistributedOptimizer optimizer;",
    "lockstep/data/distributed_sampler.h": "void use(std::int64_t index); extern MNIST test; double count_correct(const Batch& batch);",
    "lockstep/data/pin_memory.h": "extern torch::Device device;",
    "lockstep/formats/gzip_reader.h": "void use(std::span<const std::byte> bytes);",
    "lockstep/formats/safetensors.h": "extern std::span<const std::byte> bytes;",
    "lockstep/formats/safetensors_writer.h": "std::span<const std::byte> bytes_of(const std::string& name);",
    "lockstep/job/connect.h": "extern Secret secret; extern int size; extern float score;",
    "lockstep/job/device_mesh.h": "extern std::span<float> activations, gradients;",
    "lockstep/job/job.h": "void train();",
    "lockstep/job/join.h": "void train_epoch();",
    "lockstep/job/spawn.h": "void train(); void fn(int rank);",
    "lockstep/models/generate.h": "extern models::GPT2 lm; extern at::Tensor tokens;",
    "lockstep/models/gpt2.h": "extern models::GPT2 net; extern at::Tensor tokens;",
    "lockstep/named/engine.h": "extern ProcessGroup group; extern float* w; extern std::int64_t count; using named::Engine; using named::Kind; "
                               "using named::agreed_settings; using named::settings_of_environment;",
    "lockstep/named/session.h": "extern named::Request request; extern float* x;",
    "lockstep/optim/lr_scheduler.h": "void train_epoch();",
    "lockstep/optim/reduce_lr_on_plateau.h": "double validate();",
    "lockstep/optim/norm_reducer.h": "extern optim::LAMB optimizer; extern std::vector<at::Tensor> shards;",
    "lockstep/optim/optimizer.h": "extern std::vector<at::Tensor> weights, biases;",
    "lockstep/os/file_memory.h": "extern std::size_t bytes; extern int n; MemoryRange range(int); void work_on(MemoryRange range);",
    "lockstep/optim/parameter_shard.h": "extern at::Tensor flat;",
    "lockstep/parallel/ddp/distributed_data_parallel.h": "extern at::Tensor first_half, second_half;",
    "lockstep/parallel/gradients/hooks/hook_registry.h": "std::shared_ptr<CommHook> my_hook();",
    "lockstep/job/model_parallel.h": "extern std::span<float> activations, gradients; void report_loss();",
    "lockstep/parallel/context_parallel/ring_attention.h": "extern at::Tensor tokens, query, key, value;",
    "lockstep/parallel/tensor_parallel/column_parallel_linear.h": "namespace tp = lockstep::tensor_parallel;",
    "lockstep/parallel/tensor_parallel/cross_entropy.h": "namespace tp = lockstep::tensor_parallel; extern tp::VocabParallelEmbedding wte; extern at::Tensor targets;",
    "lockstep/parallel/model_parallel/gradient_norm.h": "extern Pipeline pipeline; extern ShardedDataParallel<SimpleCNNImpl> model; "
                                                        "extern ModelParallel mesh; extern GradientNorm norm;",
    "lockstep/parallel/tensor_parallel/model_state.h": "namespace tp = lockstep::tensor_parallel; extern ShardedDataParallel<SimpleCNNImpl> model; "
                                                       "extern ShardedOptimizer<optim::AdamW> sharded_optimizer;",
    "lockstep/parallel/tensor_parallel/parallel_linear.h": "namespace tp = lockstep::tensor_parallel; extern at::Tensor weight, bias, weight_2, bias_2;",
    "lockstep/parallel/tensor_parallel/random.h": "extern at::Tensor h;",
    "lockstep/parallel/tensor_parallel/row_parallel_linear.h": "extern at::Tensor h;",
    "lockstep/parallel/tensor_parallel/vocab_parallel_embedding.h": "namespace tp = lockstep::tensor_parallel; extern at::Tensor tokens; "
                                                                    "extern tp::VocabParallelEmbedding wte;",
    "lockstep/parallel/pipeline/balance.h": "torch::nn::Sequential all_layers(); PipelineLoss cross_entropy_loss();",
    "lockstep/parallel/pipeline/pipeline.h": "torch::nn::Sequential lower_layers(), upper_layers(); PipelineLoss cross_entropy_loss(); "
                                             "extern std::vector<Batch> batches; extern at::Tensor embedding; extern Pipeline pipeline;",
    "lockstep/parallel/pipeline/pipeline_skip.h": "at::Tensor down(const at::Tensor& x);",
    "lockstep/parallel/pipeline/stage_failed.h": "extern Pipeline pipeline;",
    "docs/pipeline.md": "torch::nn::Sequential all_layers(); PipelineLoss cross_entropy_loss(); extern std::vector<Batch> batches; "
                        "extern at::Tensor sample;",
    "lockstep/parallel/virtual_ranks/virtual_rank_states.h": "void write(int virtual_rank, const NamedTensors& tensors); "
                                                             "extern std::vector<VirtualRankState> states;",
    "lockstep/parallel/virtual_ranks/virtual_ranks.h": "extern std::vector<Batch> shares; void train_on(const Batch& share);",
    "lockstep/parallel/zero/sharded_data_parallel.h": "extern ShardedDataParallel<SimpleCNNImpl> model; extern torch::nn::Linear fc;",
    "docs/3d_parallel.md": "extern models::PipelineGPT2 lm; extern ShardedDataParallel<models::PipelineGPT2Impl> sharded; "
                           "extern ShardedOptimizer<optim::AdamW> adamw;",
    "docs/tensor_parallel.md": "extern ModelParallel parallel; extern at::Tensor tokens, query, key, value;",
    "docs/zero.md": "extern ShardedDataParallel<SimpleCNNImpl> model; extern models::GPT2Config config;",
    "lockstep/store/prefix_store.h": "extern std::shared_ptr<Store> store; extern std::string text;",
    "lockstep/store/tcp_store.h": "extern std::string path;",
    "lockstep/store/tcp_store_server.h": "extern Secret secret;",
    "lockstep/tensor/caching_allocator.h": "void train_epoch();",
    "lockstep/tensor/meta_init.h": "extern models::GPT2Config config;",
    "lockstep/tensor/point_to_point.h": "extern at::Tensor mine, theirs; extern int left, right;",
    "lockstep/train/best_checkpoints.h": "void train_steps(int steps); double accuracy();",
    "lockstep/train/early_stopping.h": "void train_epoch(); double validation_loss();",
    "lockstep/train/gather_for_metrics.h": "extern MNIST test; struct Auc { void update(const at::Tensor& output, const at::Tensor& target); }; "
                                           "extern Auc auc;",
    "lockstep/train/mean.h": "extern at::Tensor local_loss; double share_correct(const Batch& batch);",
    "lockstep/train/profiler.h": "void train(int step);",
    "lockstep/train/profiler_averages.h": "extern Profile profile;",
    "lockstep/train/progress.h": "extern std::int64_t steps, batch_size; double train_step();",
}


class Snippet:
    def __init__(self, place, lines):
        self.place = place
        self.text = "\n".join(lines)

    def is_program(self):
        return re.search(r"^#include", self.text, re.M) is not None

    def is_declaration(self):
        return re.match(r"(struct|class|template|int main|void \w+\(|at::Tensor \w+\(|static )", self.text) is not None


def is_code(lines):
    return any(re.search(r"[;{}]\s*$", line.split("//")[0]) for line in lines)


def follows_by_brace(paragraph):
    """Whether a brace is still open, so that an empty line belongs to the example."""
    text = "\n".join(paragraph)
    return text.count("{") > text.count("}")


def snippets_of_header(path):
    found, paragraph, follows_empty = [], [], True
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines + [""], 1):
        inside = re.match(r"\s*//   (.*\S)$", line)
        if inside and (paragraph or (follows_empty and not inside[1].startswith(" "))):
            paragraph.append(inside[1])
        elif paragraph and follows_by_brace(paragraph) and re.match(r"\s*//\s*$", line):
            paragraph.append("")
        elif paragraph:
            found.append((number - len(paragraph), paragraph))
            paragraph = []
        follows_empty = re.match(r"\s*//\s*$", line) is not None
    return [Snippet(f"{path.relative_to(ROOT)}:{number}", part) for number, part in found if is_code(part)]


def snippets_of_page(path):
    found, block = [], None
    for number, line in enumerate(path.read_text().split("\n"), 1):
        if block is None and line.strip() == "```cpp":
            block = []
        elif block is not None and line.strip() == "```":
            found.append(Snippet(f"{path.relative_to(ROOT)}:{number - len(block)}", block))
            block = None
        elif block is not None:
            block.append(line)
    return found


def public_headers():
    room = ROOT / "lockstep"
    names = set(ALSO_PUBLIC)
    for umbrella in ("lockstep.h", "comm/collectives/collectives.h"):
        names.update(re.findall(r'#include "lockstep/(.*)"', (room / umbrella).read_text()))
    return [room / "lockstep.h"] + [room / name for name in sorted(names)]


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def all_snippets():
    found = [snippet for page in pages() for snippet in snippets_of_page(page)]
    return found + [snippet for header in public_headers() for snippet in snippets_of_header(header)]


def placed(snippet, number):
    file = snippet.place.split(":")[0]
    fixture = FIXTURES.get(file, "")
    if file.startswith("lockstep/comm/"):
        fixture += " extern ProcessGroup world;"
    name, line = snippet.place.rsplit(":", 1)
    text = f'#line {line} "{name}"\n{snippet.text}\n#line 1 "after {name}"\n'
    if not snippet.is_declaration():
        text = f"[[maybe_unused]] void run() {{\n{text}}}\n"
    return f"namespace snippet_{number} {{\n{fixture}\n{text}}}  // namespace snippet_{number}\n"


def generate(folder):
    folder.mkdir(parents=True, exist_ok=True)
    snippets = all_snippets()
    rest = [snippet for snippet in snippets if not snippet.is_program()]
    includes = "".join(f'#include "{header.relative_to(ROOT)}"\n' for header in public_headers())
    body = "\n".join(placed(snippet, number) for number, snippet in enumerate(rest))
    (folder / "snippets.cpp").write_text(f'{includes}#include "tests/snippets/names.h"\n\nnamespace snippets {{\n{body}}}  // namespace snippets\n')
    for number, program in enumerate(snippet for snippet in snippets if snippet.is_program()):
        (folder / f"program_{number}.cpp").write_text(f'#line {program.place.rsplit(":", 1)[1]} "{program.place.split(":")[0]}"\n{program.text}\n')


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        for one in all_snippets():
            print(f"{one.place}: {one.text.splitlines()[0]}")
    else:
        generate(pathlib.Path(sys.argv[1]))
