#include "lockstep/comm/collectives/objects.h"

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/barrier.h"
#include "testing/ranks.h"
#include "testing/reference.h"

namespace lockstep {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// The length differs for every rank. It is 0 for rank 0, and the text has zero bytes.
std::string bytes_of_rank(int rank) {
  return std::string(static_cast<std::size_t>(rank) * 1000, '\0') +
         std::string(static_cast<std::size_t>(rank), 'x');
}
json json_of_rank(int rank) {
  return {{"rank", rank}, {"list", std::vector<int>(static_cast<std::size_t>(rank), 7)}};
}

RANKS_TEST(Objects, AllGather, Ranks(1, 2, 3, 4), EveryBackend()) {
  const auto bytes = comm::all_gather_object(world(), bytes_of_rank(rank()));
  const auto values = comm::all_gather_object(world(), json_of_rank(rank()));
  ASSERT_EQ(bytes.size(), static_cast<std::size_t>(size()));
  ASSERT_EQ(values.size(), bytes.size());
  for (int r = 0; r < size(); ++r) {
    EXPECT_EQ(bytes[static_cast<std::size_t>(r)], bytes_of_rank(r));
    EXPECT_EQ(values[static_cast<std::size_t>(r)], json_of_rank(r));
  }
}

RANKS_TEST(Objects, Gather, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (int root = 0; root < size(); ++root) {
    const auto bytes = comm::gather_object(world(), bytes_of_rank(rank()), root);
    const auto values = comm::gather_object(world(), json_of_rank(rank()), root);
    ASSERT_EQ(bytes.size(), static_cast<std::size_t>(rank() == root ? size() : 0));
    ASSERT_EQ(values.size(), bytes.size());
    for (std::size_t r = 0; r < bytes.size(); ++r) {
      EXPECT_EQ(bytes[r], bytes_of_rank(static_cast<int>(r)));
      EXPECT_EQ(values[r], json_of_rank(static_cast<int>(r)));
    }
  }
}

RANKS_TEST(Objects, Broadcast, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (int root = 0; root < size(); ++root) {
    std::string bytes = bytes_of_rank(rank());
    json value = json_of_rank(rank());
    comm::broadcast_object(world(), bytes, root);
    comm::broadcast_object(world(), value, root);
    EXPECT_EQ(bytes, bytes_of_rank(root));
    EXPECT_EQ(value, json_of_rank(root));
  }
}

RANKS_TEST(Objects, Scatter, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (int root = 0; root < size(); ++root) {
    std::vector<std::string> bytes;
    std::vector<json> values;
    for (int r = 0; r < size() && rank() == root; ++r) {
      bytes.push_back(bytes_of_rank(r));
      values.push_back(json_of_rank(r));
    }
    EXPECT_EQ(comm::scatter_object(world(), bytes, root), bytes_of_rank(rank()));
    EXPECT_EQ(comm::scatter_object(world(), values, root), json_of_rank(rank()));
  }
}

RANKS_TEST(Objects, FromRankToRank, Ranks(2, 3, 4), EveryBackend(), Except("nccl")) {
  if (rank() != 0) {
    comm::send_object(world(), bytes_of_rank(rank()), 0, 5);
    comm::send_object(world(), json_of_rank(rank()), 0, 6);
    return;
  }
  for (int i = 1; i < size(); ++i) {
    const auto object = comm::recv_object(world(), ANY_SOURCE, 5);
    EXPECT_EQ(object.bytes, bytes_of_rank(object.source));
    EXPECT_EQ(comm::recv_json_object(world(), i, 6), json_of_rank(i));
  }
}

// The receiver refuses bytes that are not JSON and names the sender. The group stays usable.
RANKS_TEST(Objects, WhatIsNotJsonIsRefusedByName, Ranks(2, 3), EveryBackend()) {
  if (rank() == 1) comm::send_object(world(), std::string("{\"a\": "), 0);
  if (rank() == 0) {
    EXPECT_THAT([&] { comm::recv_json_object(world(), 1); },
                ThrowsMessage<FormatError>(
                    AllOf(HasSubstr("rank 1"), HasSubstr("is not JSON"), HasSubstr("rank 0"))));
  }
  comm::barrier(world());
}

// Values that JSON text cannot express.
RANKS_TEST(Objects, EveryJsonValueArrivesAsItIs, Ranks(1, 2, 3), EveryBackend()) {
  const json odd = {
      {"nan", NAN}, {"infinity", INFINITY}, {"text", "caf\xe9"}, {"bytes", json::binary({0, 255})}};
  const auto expect_odd = [&](const json& value) {
    EXPECT_TRUE(value.at("nan").is_number_float() && std::isnan(value["nan"].get<double>()));
    EXPECT_EQ(value.at("infinity"), INFINITY);
    EXPECT_EQ(value.at("text"), "caf\xe9");
    EXPECT_EQ(value.at("bytes"), json::binary({0, 255}));
  };
  for (const json& value : comm::all_gather_object(world(), odd)) expect_odd(value);
  for (const json& value : comm::gather_object(world(), odd, 0)) expect_odd(value);
  json value = rank() == 0 ? odd : json();
  comm::broadcast_object(world(), value, 0);
  expect_odd(value);
  const std::vector<json> all(static_cast<std::size_t>(rank() == 0 ? size() : 0), odd);
  expect_odd(comm::scatter_object(world(), all, 0));
  if (backend_name().ends_with("nccl")) return;  // nccl has no tags
  if (rank() == 0 && size() > 1) comm::send_object(world(), odd, 1, 7);
  if (rank() == 1) expect_odd(comm::recv_json_object(world(), 0, 7));
}

// The error on the rank whose object is refused, and on the other ranks.
template <typename Call> void expect_refusal(bool is_own, const Call& call) {
  const auto deep = HasSubstr("nested more than 1000 deep");
  if (is_own) {
    EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("_object on group"), deep)));
  } else {
    EXPECT_THAT(call, ThrowsMessage<FormatError>(AllOf(HasSubstr("rank 1 has no object to send"), deep)));
  }
}

// One rank's object cannot be sent. That rank and all receivers get the reason, no rank waits, and the group
// stays usable.
RANKS_TEST(Objects, WhatOneRankCannotSendIsAnErrorOnAll, Ranks(2, 3), EveryBackend(), Except("nccl")) {
  json deep = 1;
  for (int i = 0; i < 1001; ++i) deep = json::array({std::move(deep)});
  const bool is_own = rank() == 1;
  const json mine = is_own ? deep : json(rank());
  json value = mine;
  expect_refusal(is_own, [&] { comm::all_gather_object(world(), mine); });
  expect_refusal(is_own, [&] { comm::broadcast_object(world(), value, 1); });
  const std::vector<json> all(static_cast<std::size_t>(is_own ? size() : 0), deep);
  expect_refusal(is_own, [&] { comm::scatter_object(world(), all, 1); });
  if (rank() < 2) {
    expect_refusal(is_own, [&] { comm::gather_object(world(), mine, 0); });
  } else {
    comm::gather_object(world(), mine, 0);
  }
  if (is_own) expect_refusal(true, [&] { comm::send_object(world(), deep, 0); });
  if (rank() == 0) expect_refusal(false, [&] { comm::recv_json_object(world(), 1); });
  EXPECT_EQ(comm::all_gather_object(world(), json(rank())).at(1), 1);
}

RANKS_TEST(Objects, OneObjectPerRankIsNeeded, Ranks(2), Backends("shm", "tcp")) {
  const std::vector<std::string> three(rank() == 0 ? 3 : 0, "x");
  const auto call = [&] { comm::scatter_object(world(), three, 0); };
  if (rank() == 0)
    EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(HasSubstr("one object per rank is needed")));
  if (rank() == 1) EXPECT_THAT(call, ThrowsMessage<FormatError>(HasSubstr("one object per rank is needed")));
  comm::barrier(world());
}

RANKS_TEST(Objects, WhatIsTooLargeOnOneRankIsRefusedOnAll, Ranks(1, 2), EveryBackend()) {
  if (reference::SANITIZED) {
    std::fprintf(stderr, "not run: the sanitizers need minutes for the shadow of 1 GiB\n");
    return;
  }
  const bool is_own = rank() == size() - 1;
  const std::string mine(is_own ? comm::MAX_OBJECT_BYTES + 1 : 1, 'x');
  const auto call = [&] { comm::all_gather_object(world(), mine); };
  if (is_own) EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(HasSubstr("too large")));
  if (!is_own)
    EXPECT_THAT(call, ThrowsMessage<FormatError>(AllOf(HasSubstr("rank 1"), HasSubstr("too large"))));
  comm::barrier(world());
}

}  // namespace
}  // namespace lockstep
