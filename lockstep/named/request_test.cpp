// The wire form of a request, its words, and in what two requests of one name may differ.
#include "lockstep/named/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::named {
namespace request_test {
namespace {

Request gradient() {
  Request request{.kind = Kind::ALLREDUCE, .name = "a/b", .process_set = 3, .dtype = DType::FLOAT32};
  request.shape = {2, 0, 5};
  request.splits = {1, 2, 3};
  request.group = "g";
  request.group_size = 4;
  request.prescale = 0.25;
  return request;
}

TEST(NamedRequest, ArrivesAsItWasSent) {
  const Request barrier{.kind = Kind::BARRIER, .name = "end"};
  std::string bytes;
  encode(gradient(), bytes);
  encode(barrier, bytes);
  const auto found = decode(bytes);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(*found[0], gradient());
  EXPECT_EQ(*found[1], barrier);
  bytes.pop_back();
  EXPECT_THROW(decode(bytes), InternalError);
}

TEST(NamedRequest, IsDescribed) {
  Request request{.kind = Kind::ALLREDUCE, .name = "x", .dtype = DType::FLOAT16};
  request.shape = {3, 4};
  EXPECT_EQ(describe(request), "allreduce of float16[3, 4], average");
  request.kind = Kind::BROADCAST;
  request.root = 2;
  EXPECT_EQ(describe(request), "broadcast of float16[3, 4], root 2");
  EXPECT_EQ(describe({.kind = Kind::BARRIER, .name = "x"}), "barrier");
}

TEST(NamedRequest, CountsElements) {
  EXPECT_EQ(gradient().elements(), 0);
  Request scalar{.dtype = DType::FLOAT64};
  EXPECT_EQ(scalar.elements(), 1);
  EXPECT_EQ(scalar.bytes(), 8U);
  scalar.shape = {7, 2, 3};
  EXPECT_EQ(scalar.row(), 6);
}

TEST(NamedRequest, NamesWhatDiffers) {
  const Request one = gradient();
  const auto changed = [&](auto change) {
    Request other = one;
    change(other);
    return differences(one, other);
  };
  EXPECT_EQ(changed([](Request&) {}), "");
  EXPECT_EQ(changed([](Request& r) { r.kind = Kind::BROADCAST; }), "operation");
  EXPECT_EQ(changed([](Request& r) { r.shape = {2, 0, 6}; }), "shape");
  EXPECT_EQ(changed([](Request& r) { r.op = Op::SUM, r.dtype = DType::INT8; }), "dtype, operator");
  EXPECT_EQ(changed([](Request& r) { r.prescale = 1, r.postscale = 2; }), "prescale, postscale");
  EXPECT_EQ(changed([](Request& r) { r.root = 1; }), "root");
  EXPECT_EQ(changed([](Request& r) { r.group_size = 5; }), "group");
  Request rows = one, others = one;
  rows.kind = others.kind = Kind::ALLGATHER;
  others.shape[0] = 9;
  EXPECT_EQ(differences(rows, others), "");
  others.shape[1] = 1;
  EXPECT_EQ(differences(rows, others), "shape beyond the first dimension");
}

}  // namespace
}  // namespace request_test
}  // namespace lockstep::named
