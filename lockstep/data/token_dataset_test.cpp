#include "lockstep/data/token_dataset.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <set>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/data/data_loader.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempFolder;
using Indices = std::vector<std::int64_t>;

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xffU);
  return text;
}

// Token i is first + i.
std::string tokens(std::uint64_t first, int count, int bytes) {
  std::string text;
  for (int i = 0; i < count; ++i) text += little_endian(first + static_cast<std::uint64_t>(i), bytes);
  return text;
}

std::string llm_c_header(std::uint64_t magic, std::uint64_t version, std::uint64_t count) {
  return little_endian(magic, 4) + little_endian(version, 4) + little_endian(count, 4) +
         std::string(1012, '\0');
}

template <typename ErrorType = FormatError>
std::string tokens_refusal(const std::string& content, const TokenDatasetOptions& options) {
  const TempFolder folder;
  const std::string path = folder.write("tokens.bin", content);
  try {
    const TokenDataset data(path, options);
    data.get_batch(Indices{data.size() - 1}, 0);
  } catch (const ErrorType& error) {
    EXPECT_TRUE((std::is_same_v<ErrorType, InvalidArgument>) ||
                std::string(error.what()).find(path) != std::string::npos);
    return error.what();
  }
  return "accepted";
}

TEST(TokenDataset, GivesWindowsOneAfterTheOther) {
  const TempFolder folder;
  for (const int bytes : {2, 4}) {
    const std::uint64_t first = bytes == 2 ? 65'000 : 4'294'967'000;
    const TokenDataset data(folder.write("tokens.bin", tokens(first, 101, bytes)),
                            {.block_size = 10, .dtype = bytes == 2 ? at::kUInt16 : at::kUInt32});
    EXPECT_EQ(data.size(), 10);
    EXPECT_EQ(data.tokens(), 101);
    const Batch batch = data.get_batch(Indices{9, 0}, 3);
    const at::Tensor window = at::arange(10, at::kLong) + static_cast<std::int64_t>(first);
    EXPECT_TRUE(at::equal(batch.data, at::stack({window + 90, window})));
    EXPECT_TRUE(at::equal(batch.target, batch.data + 1));
    EXPECT_EQ(data.get_batch({}, 0).data.sizes(), at::IntArrayRef({0, 10}));
    for (const std::int64_t bad : {-1, 10}) EXPECT_THROW(data.get_batch(Indices{bad}, 0), InvalidArgument);
  }
}

TEST(TokenDataset, ReadsLlmCFiles) {
  const TempFolder folder;
  const TokenDataset gpt2(folder.write("gpt2.bin", llm_c_header(20240520, 1, 9) + tokens(7, 9, 2)),
                          {.block_size = 8});
  EXPECT_TRUE(at::equal(gpt2.get_batch(Indices{0}, 0).data[0], at::arange(7, 15, at::kLong)));
  const TokenDataset llama(folder.write("llama.bin", llm_c_header(20240801, 7, 9) + tokens(7, 9, 4)),
                           {.block_size = 8, .dtype = at::kUInt32});
  EXPECT_TRUE(at::equal(llama.get_batch(Indices{0}, 0).target[0], at::arange(8, 16, at::kLong)));
}

// With block size 4 and 9 tokens there are 5 places; in 400 epochs of two windows each must come, about
// equally often.
TEST(TokenDataset, DrawsWindowsAtEveryPlace) {
  const TempFolder folder;
  const TokenDataset data(folder.write("tokens.bin", tokens(0, 9, 2)),
                          {.block_size = 4, .random = true, .seed = 1});
  ASSERT_EQ(data.size(), 2);
  std::array<int, 5> seen{};
  for (int epoch = 0; epoch < 400; ++epoch) {
    const Batch batch = data.get_batch(Indices{0, 1}, epoch);
    EXPECT_TRUE(at::equal(batch.target, batch.data + 1));
    for (int i : {0, 1}) {
      EXPECT_TRUE(at::equal(batch.data[i], batch.data[i][0] + at::arange(4)));
      ++seen.at(static_cast<std::size_t>(batch.data[i][0].item<std::int64_t>()));
    }
  }
  for (const int count : seen) EXPECT_NEAR(count, 160, 5 * std::sqrt(800 * 0.2 * 0.8));
}

// All ranks together see in each epoch what one process sees, whatever the number of threads.
TEST(TokenDataset, RandomWindowsDoNotDependOnRanksAndWorkers) {
  const TempFolder folder;
  const TokenDataset data(folder.write("tokens.bin", tokens(0, 1001, 2)),
                          {.block_size = 10, .random = true, .seed = 3});
  const auto starts = [&](int ranks, int workers, std::int64_t epoch) {
    std::multiset<std::int64_t> all;
    for (int rank = 0; rank < ranks; ++rank) {
      DistributedSampler sampler(data.size(), {.num_replicas = ranks, .rank = rank});
      sampler.set_epoch(epoch);
      for (auto& batch : make_data_loader(data, sampler, {.batch_size = 3, .workers = workers}))
        for (std::int64_t i = 0; i < batch.data.size(0); ++i)
          all.insert(batch.data[i][0].item<std::int64_t>());
    }
    return all;
  };
  const auto alone = starts(1, 0, 2);
  EXPECT_EQ(alone.size(), 100U);
  EXPECT_EQ(starts(1, 3, 2), alone);
  EXPECT_EQ(starts(2, 1, 2), alone);
  EXPECT_EQ(starts(4, 2, 2), alone);
  EXPECT_NE(starts(1, 0, 3), alone);
}

TEST(TokenDataset, RefusesBytesThatAreNoTokens) {
  EXPECT_THAT(tokens_refusal("12345", {.block_size = 1}),
              HasSubstr("its 5 bytes are no whole number of tokens of 2 bytes"));
  EXPECT_THAT(tokens_refusal("1234567890", {.block_size = 1, .dtype = at::kUInt32}), HasSubstr("of 4 bytes"));
}

TEST(TokenDataset, RefusesAFileWithoutAWindow) {
  EXPECT_EQ(tokens_refusal(tokens(0, 9, 2), {.block_size = 8}), "accepted");
  EXPECT_THAT(tokens_refusal(tokens(0, 8, 2), {.block_size = 8}),
              HasSubstr("holds 8 tokens, and a window with its targets needs 9"));
  EXPECT_THAT(tokens_refusal("", {.block_size = 1}), HasSubstr("holds 0 tokens"));
}

TEST(TokenDataset, RefusesATokenOutsideOfTheVocabulary) {
  EXPECT_EQ(tokens_refusal(tokens(0, 9, 2), {.block_size = 4, .vocab_size = 9}), "accepted");
  EXPECT_THAT(tokens_refusal(tokens(0, 9, 2), {.block_size = 4, .vocab_size = 8}),
              HasSubstr("token 8 at place 8 is not below the vocab_size of 8"));
  EXPECT_THAT(tokens_refusal(tokens(0, 9, 2), {.block_size = 4, .vocab_size = 7}),
              HasSubstr("token 7 at place 7"));
}

TEST(TokenDataset, RefusesHeadersThatDoNotFit) {
  const TokenDatasetOptions options = {.block_size = 4};
  EXPECT_EQ(tokens_refusal(llm_c_header(20240520, 1, 9) + tokens(0, 9, 2), options), "accepted");
  EXPECT_THAT(tokens_refusal(llm_c_header(20240520, 2, 9) + tokens(0, 9, 2), options),
              HasSubstr("version 2, expected 1"));
  EXPECT_THAT(tokens_refusal(llm_c_header(20240520, 1, 10) + tokens(0, 9, 2), options),
              HasSubstr("says 10 tokens, and it holds 9"));
  EXPECT_THAT(tokens_refusal(llm_c_header(20240801, 7, 9) + tokens(0, 9, 4), options),
              HasSubstr("says UInt32, and the option dtype UInt16"));
}

TEST(TokenDataset, SaysThatTheFileWasCut) {
  const TempFolder folder;
  const TokenDataset data(folder.write("tokens.bin", tokens(0, 100, 2)), {.block_size = 4});
  data.get_batch(Indices{0}, 0);
  std::filesystem::resize_file(folder / "tokens.bin", 100);
  EXPECT_THROW(data.get_batch(Indices{0}, 0), SystemError);
}

TEST(TokenDataset, RefusesOptionsOutOfRange) {
  const std::string file = tokens(0, 100, 2);
  EXPECT_THAT(tokens_refusal<InvalidArgument>(file, {.block_size = 0}), HasSubstr("block_size is 0"));
  EXPECT_THAT(tokens_refusal<InvalidArgument>(file, {.block_size = 4, .dtype = at::kInt}),
              HasSubstr("dtype is Int"));
  EXPECT_THAT(tokens_refusal<InvalidArgument>(file, {.block_size = 4, .vocab_size = -1}),
              HasSubstr("vocab_size is -1"));
}

}  // namespace
}  // namespace lockstep
