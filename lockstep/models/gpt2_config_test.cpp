#include "lockstep/models/gpt2_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "testing/temp_folder.h"

namespace lockstep::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempFolder;

std::string gpt2_problem(const GPT2Config& config) {
  try {
    config.check();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "";
}

// The numbers of the published models.
TEST(GPT2Config, CountsTheParametersOfThePublishedSizes) {
  EXPECT_EQ(GPT2Config::small().parameter_count(), 124'439'808);
  EXPECT_EQ(GPT2Config::medium().parameter_count(), 354'823'168);
  EXPECT_EQ(GPT2Config::large().parameter_count(), 774'030'080);
  EXPECT_EQ(GPT2Config::xl().parameter_count(), 1'557'611'200);
  EXPECT_EQ(GPT2Config{.tie_word_embeddings = false}.parameter_count(), 124'439'808 + 50257 * 768);
  for (const GPT2Config& config :
       {GPT2Config::small(), GPT2Config::medium(), GPT2Config::large(), GPT2Config::xl()})
    EXPECT_EQ(config.n_embd, 64 * config.n_head);
}

TEST(GPT2Config, NamesAllThatIsOutOfRange) {
  EXPECT_EQ(gpt2_problem(GPT2Config::xl()), "");
  EXPECT_THAT(gpt2_problem({.vocab_size = 0, .n_embd = 10, .n_head = 3, .attn_pdrop = 1.5}),
              AllOf(HasSubstr("vocab_size is 0, expected 1 or more"),
                    HasSubstr("n_embd is 10, expected a multiple of n_head, which is 3"),
                    HasSubstr("attn_pdrop is 1.5, expected 0 to 1")));
  EXPECT_THAT(gpt2_problem({.n_positions = -1}), HasSubstr("n_positions is -1"));
  EXPECT_THAT(gpt2_problem({.n_embd = 0}), HasSubstr("n_embd is 0"));
  EXPECT_THAT(gpt2_problem({.n_layer = 0}), HasSubstr("n_layer is 0"));
  EXPECT_THAT(gpt2_problem({.n_head = 0}), HasSubstr("n_head is 0"));
  EXPECT_THAT(gpt2_problem({.n_inner = -4}), HasSubstr("n_inner is -4, expected 0 or more"));
  EXPECT_THAT(gpt2_problem({.embd_pdrop = -0.1}), HasSubstr("embd_pdrop is -0.1"));
  EXPECT_THAT(gpt2_problem({.resid_pdrop = std::numeric_limits<double>::quiet_NaN()}),
              HasSubstr("resid_pdrop is nan"));
  EXPECT_THAT(gpt2_problem({.layer_norm_epsilon = 0}), HasSubstr("layer_norm_epsilon is 0"));
  EXPECT_THAT(gpt2_problem({.initializer_range = -1}), HasSubstr("initializer_range is -1"));
}

// The fields of the published gpt2/config.json that are about the model, and some that are not.
TEST(GPT2Config, ReadsWhatHuggingFaceWrites) {
  const TempFolder folder;
  const auto read = [&](const std::string& json) {
    return read_gpt2_config(folder.write("config.json", json));
  };
  EXPECT_EQ(read(R"({
    "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
    "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_inner": null,
    "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_use_proj": true, "vocab_size": 50257})"),
            GPT2Config::small());
  EXPECT_EQ(read("{}"), GPT2Config());
  EXPECT_EQ(
      read(R"({"n_embd": 32, "n_head": 4, "n_inner": 48, "attn_pdrop": 0, "tie_word_embeddings": false,
                     "activation_function": "gelu_pytorch_tanh"})"),
      (GPT2Config{.n_embd = 32, .n_head = 4, .n_inner = 48, .attn_pdrop = 0, .tie_word_embeddings = false}));
}

TEST(GPT2Config, WritesWhatItReads) {
  const TempFolder folder;
  const GPT2Config odd = {.vocab_size = 61,
                          .n_positions = 7,
                          .n_embd = 6,
                          .n_layer = 2,
                          .n_head = 3,
                          .n_inner = 5,
                          .embd_pdrop = 0.25,
                          .attn_pdrop = 0.5,
                          .resid_pdrop = 0.125,
                          .layer_norm_epsilon = 1e-6,
                          .initializer_range = 0.01,
                          .tie_word_embeddings = false};
  for (const GPT2Config& config : {odd, GPT2Config::medium()}) {
    write_gpt2_config(config, folder / "config.json");
    EXPECT_EQ(read_gpt2_config(folder / "config.json"), config);
    const bool has_end = config.vocab_size > 50256;  // Python's default for bos_token_id and eos_token_id
    EXPECT_EQ(folder.read("config.json").find("\"eos_token_id\": null") == std::string::npos, has_end);
  }
}

TEST(GPT2Config, RefusesOtherModelsAndBrokenFiles) {
  const TempFolder folder;
  const auto problem = [&](const std::string& json) -> std::string {
    const std::string path = folder.write("config.json", json);
    try {
      read_gpt2_config(path);
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(path));
      return str("argument: ", error.what());
    } catch (const FormatError& error) {
      EXPECT_THAT(error.what(), HasSubstr(path));
      return str("format: ", error.what());
    }
    return "";
  };
  EXPECT_THAT(problem(R"({"model_type": "gpt_neo"})"),
              AllOf(HasSubstr("argument"), HasSubstr(R"(model_type is "gpt_neo", expected "gpt2")")));
  EXPECT_THAT(problem(R"({"activation_function": "relu"})"), HasSubstr("argument"));
  EXPECT_THAT(problem(R"({"scale_attn_weights": false})"), HasSubstr("argument"));
  EXPECT_THAT(problem(R"({"scale_attn_by_inverse_layer_idx": true})"), HasSubstr("argument"));
  EXPECT_THAT(problem(R"({"add_cross_attention": true})"), HasSubstr("argument"));
  EXPECT_THAT(problem(R"({"n_embd": "768"})"), AllOf(HasSubstr("format"), HasSubstr("n_embd")));
  EXPECT_THAT(problem(R"({"n_embd": 76.5})"), HasSubstr("format"));
  EXPECT_THAT(problem(R"({"tie_word_embeddings": 1})"), HasSubstr("format"));
  EXPECT_THAT(problem("[]"), HasSubstr("format"));
  EXPECT_THAT(problem("{"), HasSubstr("format"));
  EXPECT_THAT(problem(std::string(1'000'001, ' ')), HasSubstr("format"));
  EXPECT_THROW(read_gpt2_config(folder / "absent.json"), SystemError);
  folder.write("config.json", R"({"n_layer": -1})");
  EXPECT_THROW(read_gpt2_config(folder / "config.json"), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::models
