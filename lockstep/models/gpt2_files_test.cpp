#include "lockstep/models/gpt2_files.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/tensor/state_dict.h"
#include "testing/paths.h"
#include "testing/python.h"
#include "testing/temp_folder.h"

namespace lockstep::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_python;
using testing::TempFolder;

GPT2Config filed() { return {.vocab_size = 19, .n_positions = 8, .n_embd = 12, .n_layer = 2, .n_head = 3}; }

// Of testing/gpt2.py: a state of filed(), its logits of `tokens` in evaluation, in float32.
std::string gpt2_python(bool tied = true) {
  return str("import sys; sys.path.insert(0, '", testing::source_folder(), R"(/testing')
import json, torch, gpt2
from safetensors.torch import load_file, save_file
from safetensors import safe_open
torch.set_num_threads(1); torch.manual_seed(9)
folder = sys.argv[1]
tokens = torch.arange(16).reshape(2, 8)
state = gpt2.random_state(19, 8, 12, 2, tied=)",
             tied ? "True" : "False", ")\nexpected = gpt2.logits(state, tokens, 2, 3)\n");
}

at::Tensor logits_of(GPT2& net) {
  net->eval();
  return net->forward(at::arange(16).view({2, 8}));
}

void expect_close(const at::Tensor& ours, const at::Tensor& expected) {
  ASSERT_EQ(ours.sizes(), expected.sizes());
  EXPECT_LE((ours - expected).abs().max().item<double>(), 1e-4);
}

std::string load_problem(GPT2& net, const std::string& path) {
  try {
    load_gpt2(*net, path);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

// The layouts that are in use: by GPT2LMHeadModel, by the first gpt2 files (no prefix, masks), in several
// files, by safetensors' save_model (which of two names of one tensor it keeps is the first), by torch.save
// of a state dict, and behind Python's DDP.
TEST(GPT2Files, LoadsEveryLayout) {
  const TempFolder folder;
  run_python(gpt2_python() + R"(
mask = torch.ones(8, 8).tril().reshape(1, 1, 8, 8)
masks = {f"transformer.h.{i}.attn.{name}": value.clone() for i in range(2)
         for name, value in (("bias", mask), ("masked_bias", torch.tensor(-1e4)))}
def bare(tensors): return {name.removeprefix("transformer."): value for name, value in tensors.items()}
wte = state["transformer.wte.weight"]
save_file({"logits": expected}, folder + "/expected.safetensors")
save_file(state, folder + "/0.safetensors", metadata={"format": "pt"})
save_file(bare(state | masks), folder + "/1.safetensors")
save_file(state | masks | {"lm_head.weight": wte.clone()}, folder + "/2.safetensors")
save_file({name: value for name, value in state.items() if value is not wte} | {"lm_head.weight": wte}, folder + "/3.safetensors")
torch.save(state | masks | {"lm_head.weight": wte}, folder + "/4.pt")
torch.save({"module." + name: value for name, value in state.items()} | {"module.lm_head.weight": wte}, folder + "/5.pt")
names = sorted(state)
for i, part in enumerate((names[:9], names[9:])):
    save_file({name: state[name] for name in part}, f"{folder}/model-0000{i + 1}-of-00002.safetensors")
json.dump({"metadata": {}, "weight_map": {name: f"model-0000{1 + (name in names[9:])}-of-00002.safetensors" for name in names}},
          open(folder + "/model.safetensors.index.json", "w"))
)",
             {folder.path()});
  const at::Tensor expected = load_tensors(folder / "expected.safetensors")[0].second;
  for (const char* name : {"0.safetensors", "1.safetensors", "2.safetensors", "3.safetensors", "4.pt", "5.pt",
                           "model.safetensors.index.json", ""}) {
    SCOPED_TRACE(name);
    GPT2 net(filed());
    load_gpt2(*net, folder / name);  // the last is the folder, which has an index
    expect_close(logits_of(net), expected);
  }
}

TEST(GPT2Files, AFolderGivesTheModelWithItsConfig) {
  const TempFolder folder;
  run_python(gpt2_python(/*tied=*/false) + R"(
json.dump({"model_type": "gpt2", "vocab_size": 19, "n_positions": 8, "n_embd": 12, "n_layer": 2, "n_head": 3,
           "tie_word_embeddings": False, "activation_function": "gelu_new", "attn_pdrop": 0.0}, open(folder + "/config.json", "w"))
save_file({name: value.to(torch.bfloat16) for name, value in state.items()}, folder + "/model.safetensors")
state = {name: value.to(torch.bfloat16).float() for name, value in state.items()}
save_file({"logits": gpt2.logits(state, tokens, 2, 3)}, folder + "/expected.safetensors")
)",
             {folder.path()});
  GPT2 net = gpt2_from_pretrained(folder.path());
  EXPECT_EQ(net->config().attn_pdrop, 0);
  EXPECT_FALSE(net->config().tie_word_embeddings);
  EXPECT_EQ(net->lm_head->weight.scalar_type(), at::kFloat);
  expect_close(logits_of(net), load_tensors(folder / "expected.safetensors")[0].second);
}

TEST(GPT2Files, NamesAllThatDoesNotFitAndChangesNothing) {
  const TempFolder folder;
  GPT2 net(filed()), other(filed());
  NamedTensors tensors = state_dict(*other);
  std::map<std::string, at::Tensor> file(tensors.begin(), tensors.end());
  file.erase("transformer.h.1.attn.c_attn.bias");
  file.erase("transformer.ln_f.weight");
  file["transformer.h.0.mlp.c_fc.weight"] = file["transformer.h.0.mlp.c_fc.weight"].t();  // a Linear's
  file["transformer.h.2.ln_1.bias"] = at::zeros({12});
  save_state_dict(NamedTensors(file.begin(), file.end()), folder / "odd.safetensors");
  const at::Tensor before = logits_of(net);
  EXPECT_THAT(
      load_problem(net, folder / "odd.safetensors"),
      AllOf(HasSubstr(str("load_gpt2: \"", folder / "odd.safetensors", "\" does not fit the model")),
            HasSubstr("missing \"transformer.h.1.attn.c_attn.bias\", \"transformer.ln_f.weight\""),
            HasSubstr("unexpected \"transformer.h.2.ln_1.bias\""),
            HasSubstr("transformer.h.0.mlp.c_fc.weight has shape [48, 12] in the file and [12, 48]")));
  EXPECT_TRUE(at::equal(logits_of(net), before));
}

TEST(GPT2Files, RefusesTwoAnswersForOneTensor) {
  const TempFolder folder;
  GPT2Config config = filed();
  config.tie_word_embeddings = false;
  GPT2 tied(filed()), untied(config);
  const at::Tensor before = logits_of(tied);
  save_gpt2(*untied, folder / "untied.safetensors");
  EXPECT_THAT(
      load_problem(tied, folder / "untied.safetensors"),
      AllOf(HasSubstr("other values for \"lm_head.weight\""), HasSubstr("tie_word_embeddings = false")));
  EXPECT_TRUE(at::equal(logits_of(tied), before));
  save_gpt2(*tied, folder / "tied.safetensors");
  EXPECT_THAT(load_problem(untied, folder / "tied.safetensors"),
              AllOf(HasSubstr("missing \"lm_head.weight\""), Not(HasSubstr("unexpected"))));

  NamedTensors twice = state_dict(*tied);
  twice.emplace_back("ln_f.bias", at::ones({12}));
  save_state_dict(twice, folder / "twice.safetensors");
  EXPECT_THAT(load_problem(tied, folder / "twice.safetensors"),
              HasSubstr("holds \"transformer.ln_f.bias\" twice"));

  NamedTensors wider = state_dict(*tied);
  wider.emplace_back("lm_head.weight", at::ones({20, 12}));
  save_state_dict(wider, folder / "wider.safetensors");
  EXPECT_THAT(load_problem(tied, folder / "wider.safetensors"), HasSubstr("other values"));
}

TEST(GPT2Files, AFolderWithoutWeightsIsNamed) {
  const TempFolder folder;
  GPT2 net(filed());
  EXPECT_THAT(load_problem(net, folder.path()), HasSubstr("holds neither model.safetensors nor"));
  EXPECT_THROW(load_gpt2(*net, folder / "absent.safetensors"), SystemError);
  EXPECT_THROW(gpt2_from_pretrained(folder.path()), SystemError);
  EXPECT_THROW(load_gpt2(*net, folder.write("broken.safetensors", "xx")), FormatError);
}

// What transformers saves: no lm_head.weight in .safetensors when it is tied, both in a .pt file, as one
// tensor.
TEST(GPT2Files, PythonReadsWhatIsSaved) {
  const TempFolder folder;
  GPT2Config config = filed();
  config.tie_word_embeddings = false;
  GPT2 tied(filed()), untied(config);
  save_gpt2(*tied, folder / "some/tied");
  save_gpt2(*tied, folder / "tied.pt");
  save_gpt2(*untied, folder / "untied");
  save_state_dict({{"tied", logits_of(tied)}, {"untied", logits_of(untied)}}, folder / "logits.safetensors");
  const std::string said = run_python(gpt2_python() + R"(
logits = load_file(folder + "/logits.safetensors")
def check(tensors, expected): torch.testing.assert_close(gpt2.logits(tensors, tokens, 2, 3), logits[expected], rtol=0, atol=1e-5)
tied = load_file(folder + "/some/tied/model.safetensors")
assert set(tied) == set(state), set(tied) ^ set(state)
check(tied, "tied")
assert safe_open(folder + "/some/tied/model.safetensors", "pt").metadata() == {"format": "pt"}
config = json.load(open(folder + "/some/tied/config.json"))
print(config["model_type"], config["architectures"], config["n_inner"], config["tie_word_embeddings"], config["vocab_size"], config["eos_token_id"])
both = torch.load(folder + "/tied.pt", weights_only=True)
assert set(both) == set(state) | {"lm_head.weight"}
assert both["lm_head.weight"].data_ptr() == both["transformer.wte.weight"].data_ptr()
check(both, "tied")
untied = load_file(folder + "/untied/model.safetensors")
assert set(untied) == set(state) | {"lm_head.weight"}
check(untied, "untied")
)",
                                      {folder.path()});
  EXPECT_EQ(said, "gpt2 ['GPT2LMHeadModel'] None True 19 None\n");
  GPT2 again = gpt2_from_pretrained(folder / "untied");
  EXPECT_EQ(again->config(), config);
  EXPECT_TRUE(at::equal(logits_of(again), logits_of(untied)));
}

// The real peer, where it is installed: its files, its logits, its greedy answer; and it reads ours.
TEST(GPT2Files, GoBothWaysWithTransformers) {
  const TempFolder folder;
  const std::string load = R"(
import sys
try:
    import transformers
except ImportError as error:
    sys.exit(print(error, end=""))
import torch
from safetensors.torch import save_file
torch.set_num_threads(1); torch.manual_seed(3)
folder = sys.argv[1]
tokens = torch.arange(16).reshape(2, 8)
def record(model, name):
    model.eval()
    with torch.no_grad():
        greedy = model.generate(tokens[:, :4], attention_mask=torch.ones(2, 4), max_new_tokens=4, do_sample=False, pad_token_id=0, eos_token_id=None)
        loss = model(tokens, labels=tokens).loss
        save_file({"logits": model(tokens).logits, "loss": loss, "greedy": greedy}, f"{folder}/{name}.safetensors")
)";
  const std::string said = run_python(load + R"(
for tied in True, False:
    config = transformers.GPT2Config(vocab_size=19, n_positions=8, n_embd=12, n_layer=2, n_head=3, tie_word_embeddings=tied, initializer_range=0.3)
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(f"{folder}/theirs{tied}")
    record(model, f"theirs{tied}")
print("transformers", transformers.__version__)
)",
                                      {folder.path()});
  if (!said.starts_with("transformers "))
    GTEST_SKIP() << "Python has no transformers (" << said
                 << "); the other tests compare with testing/gpt2.py";
  const auto expect_recorded = [&](GPT2& net, const std::string& name) {
    const NamedTensors record = load_tensors(folder / (name + ".safetensors"));
    const std::map<std::string, at::Tensor> file(record.begin(), record.end());
    expect_close(logits_of(net), file.at("logits"));
    const at::Tensor tokens = at::arange(16).view({2, 8});
    expect_close(next_token_loss(net->forward(tokens).slice(1, 0, -1), tokens.slice(1, 1)), file.at("loss"));
    EXPECT_TRUE(at::equal(net->generate(tokens.slice(1, 0, 4), {.max_new_tokens = 4}), file.at("greedy")));
  };
  for (const std::string tied : {"True", "False"}) {
    GPT2 net = gpt2_from_pretrained(folder / ("theirs" + tied));
    EXPECT_EQ(net->config().tie_word_embeddings, tied == "True");
    expect_recorded(net, "theirs" + tied);
    for (const at::Tensor& parameter : net->parameters()) parameter.detach().mul_(1.25);
    save_gpt2(*net, folder / ("ours" + tied));
    run_python(load + "name = '" + "ours" + tied +
                   "'\nrecord(transformers.GPT2LMHeadModel.from_pretrained(folder + '/' + name), name)\n",
               {folder.path()});
    expect_recorded(net, "ours" + tied);
  }
}

}  // namespace
}  // namespace lockstep::models
