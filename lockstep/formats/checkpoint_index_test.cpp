#include "lockstep/formats/checkpoint_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/checksum.h"

namespace lockstep {
namespace checkpoint_index_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string SUM = "00112233445566778899aabbccddeeff";

CheckpointPiece piece(std::vector<std::int64_t> offsets, std::vector<std::int64_t> sizes,
                      std::uint64_t begin = 0) {
  return {.file = 0,
          .key = "w",
          .begin = begin,
          .offsets = std::move(offsets),
          .sizes = std::move(sizes),
          .xxh128 = SUM};
}

// A [4, 6] tensor in two pieces, and a scalar.
CheckpointIndex small_index() {
  CheckpointIndex index;
  index.step = 1200;
  index.ranks = 2;
  index.made_with = {{"libtorch", "2.13.0"}};
  index.files = {{"shard-00000-of-00001.safetensors", 200, 0, SUM}};
  index.items = {{"model", "module"}, {"epoch", "value"}, {"best", "value of each rank"}};
  index.tensors["model.w"] = {"F32", {4, 6}, {piece({0, 0}, {1, 6}), piece({1, 0}, {3, 6}, 24)}};
  index.tensors["model.s"] = {"C128", {}, {piece({}, {}, 96)}};
  index.tensors["model.none"] = {"I64", {0, 3}, {}};
  *index.values = {{"epoch", 3}};
  *index.rank_values = {{"best", {0.5, 0.25}}};
  return index;
}

std::string defect_of(const std::string& text) {
  try {
    parse_checkpoint_index(text);
  } catch (const FormatError& defect) {
    return defect.what();
  }
  return {};
}

// The text of an index that `change` has changed, with a checksum that fits.
std::string changed(const std::function<void(json&)>& change) {
  json body = json::parse(to_text(small_index()));
  change(body);
  body.erase("xxh128");
  const std::string text = body.dump();
  body["xxh128"] = checksum_of(text);
  return body.dump();
}

TEST(Checksum, IsThatOfTheSpecification) {
  // The XXH3-128 test vector of no bytes, and `printf abc | xxh128sum`.
  EXPECT_EQ(checksum_of(""), "99aa06d3014798d86001c324468d497f");
  const std::string abc = "abc";
  EXPECT_EQ(checksum_of(abc), "06b05ab6733a618578af5f94892f3950");
  Checksum parts;
  parts.add(std::as_bytes(std::span(abc).first(1)));
  parts.add(std::as_bytes(std::span(abc).subspan(1)));
  EXPECT_EQ(parts.text(), "06b05ab6733a618578af5f94892f3950");
}

TEST(CheckpointIndex, ComesBackAsItWas) {
  const CheckpointIndex index = parse_checkpoint_index(to_text(small_index()));
  EXPECT_EQ(to_text(index), to_text(small_index()));
  EXPECT_EQ(index.step, 1200);
  EXPECT_EQ(index.tensors.at("model.w").pieces[1].offsets, (std::vector<std::int64_t>{1, 0}));
  EXPECT_EQ(bytes_of(index.tensors.at("model.w").pieces[1], index.tensors.at("model.w")), 72U);
  EXPECT_EQ(index.rank_values->at("best").at(1), 0.25);
}

TEST(CheckpointIndex, NoticesEveryChangedByte) {
  const std::string text = to_text(small_index());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_NE(defect_of(other), "") << i << ": " << other;
  }
  EXPECT_THAT(defect_of(text.substr(0, text.size() / 2)), HasSubstr("not JSON"));
}

TEST(CheckpointIndex, RefusesWhatCannotBe) {
  struct Case {
    const char* defect;
    std::function<void(json&)> change;
  };
  const auto at = [](json& body) -> json& { return body["tensors"]["model.w"]; };
  const std::vector<Case> cases = {
      {"reads version 1", [](json& body) { body["lockstep_checkpoint"] = 9; }},
      {"has no \"step\"", [](json& body) { body.erase("step"); }},
      {"is not a number", [](json& body) { body["step"] = -1; }},
      {"saved by 0 ranks", [](json& body) { body["ranks"] = 0; }},
      {"outside of the checkpoint", [](json& body) { body["files"][0]["name"] = "../x"; }},
      {"outside of the checkpoint", [](json& body) { body["files"][0]["name"] = ".lock"; }},
      {"occurs twice", [](json& body) { body["files"].push_back(body["files"][0]); }},
      {"is not a checksum", [](json& body) { body["files"][0]["header_xxh128"] = "12"; }},
      {"ends behind the end", [](json& body) { body["files"][0]["header_bytes"] = 201; }},
      {"unknown dtype", [&](json& body) { at(body)["dtype"] = "F33"; }},
      {"overflows",
       [&](json& body) {
         at(body)["shape"] = {1LL << 62, 1LL << 62, 0};
       }},
      {"file 7 of 1", [&](json& body) { at(body)["pieces"][0]["file"] = 7; }},
      {"ends behind the end", [&](json& body) { at(body)["pieces"][0]["begin"] = 190; }},
      {"ends behind the end", [&](json& body) { at(body)["pieces"][0]["begin"] = (1ULL << 63) - 1; }},
      {"pieces overlap",
       [&](json& body) {
         at(body)["pieces"][1]["offsets"] = {0, 0};
       }},
      {"lies outside",
       [&](json& body) {
         at(body)["pieces"][1]["offsets"] = {2, 0};
       }},
      {"hold 6 of its 24", [&](json& body) { at(body)["pieces"].erase(1); }},
      {"dimensions", [&](json& body) { at(body)["pieces"][0]["sizes"] = {6}; }},
      {"not one a rank", [](json& body) { body["rank_values"]["best"] = {1}; }},
      {"is not an object", [](json& body) { body["values"] = 3; }},
  };
  for (const Case& one : cases) EXPECT_THAT(defect_of(changed(one.change)), HasSubstr(one.defect));
  EXPECT_THAT(defect_of(std::string(100'000, '[')), HasSubstr("levels deep"));
  EXPECT_THAT(defect_of("[]"), HasSubstr("not an object"));
}

TEST(CheckpointIndex, KnowsPiecesThatOverlapOrLeaveAHole) {
  EXPECT_EQ(defect_of_pieces({4, 4}, {piece({0, 0}, {2, 4}), piece({2, 0}, {2, 1}), piece({2, 1}, {2, 3})}),
            "");
  EXPECT_THAT(defect_of_pieces({4, 4}, {piece({0, 0}, {3, 4}), piece({2, 0}, {1, 4})}), HasSubstr("overlap"));
  // As many elements as there are, of which some occur twice.
  EXPECT_THAT(defect_of_pieces({2, 2}, {piece({0, 0}, {2, 1}), piece({1, 0}, {1, 2})}), HasSubstr("overlap"));
  EXPECT_THAT(defect_of_pieces({2, 2}, {piece({0, 0}, {2, 1})}), HasSubstr("hold 2 of its 4"));
  EXPECT_EQ(defect_of_pieces({0, 7}, {}), "");
  EXPECT_EQ(defect_of_pieces({}, {piece({}, {})}), "");
  EXPECT_THAT(defect_of_pieces({}, {}), HasSubstr("hold 0 of its 1"));
}

}  // namespace
}  // namespace checkpoint_index_test
}  // namespace lockstep
