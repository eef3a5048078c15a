#include "lockstep/parallel/tensor_parallel/parallel_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <functional>
#include <vector>

#include "lockstep/autograd/autocast.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/parallel/tensor_parallel/column_parallel_linear.h"
#include "lockstep/parallel/tensor_parallel/row_parallel_linear.h"
#include "testing/ranks.h"
#include "testing/tensor_near.h"
#include "testing/tensors.h"

// Against torch::nn::Linear in one process: first values, outputs, and all gradients.
namespace lockstep::tensor_parallel {
namespace linear_layers {
namespace {

using ::testing::AllOf;
using testing::expect_near;
using ::testing::HasSubstr;
using testing::random_values;
using ::testing::ThrowsMessage;
namespace nn = torch::nn;

constexpr std::int64_t IN = 12, OUT = 24, TOKENS = 12;

// With IN_OUT the transposed weight is drawn in its own order of memory.
nn::Linear reference(at::ScalarType type = at::kDouble, WeightLayout layout = WeightLayout::OUT_IN) {
  torch::manual_seed(5);
  nn::Linear linear(IN, OUT);
  if (layout == WeightLayout::IN_OUT) {
    const at::NoGradGuard no_grad;
    torch::manual_seed(5);
    const at::Tensor transposed = at::empty({IN, OUT});
    nn::init::kaiming_uniform_(transposed.t(), std::sqrt(5));
    linear->weight.copy_(transposed.t());
  }
  linear->to(type);
  return linear;
}

at::Tensor leaf(const at::Tensor& tensor) { return tensor.detach().clone().set_requires_grad(true); }

at::Tensor own_rows(const at::Tensor& whole, const ProcessGroup& group) {
  const std::int64_t rows = whole.size(0) / group.size();
  return whole.narrow(0, group.rank() * rows, rows);
}
at::Tensor own_columns(const at::Tensor& whole, const ProcessGroup& group) {
  return own_rows(whole.movedim(-1, 0), group).movedim(0, -1);
}

// Every parameter of `layer` is its part of the reference's, and so is every gradient.
void expect_parts(const HasPieces& layer, const nn::Linear& whole, WeightLayout layout, double tolerance) {
  for (const ParameterPiece& piece : layer.pieces()) {
    const auto in_layout = [&](const at::Tensor& tensor) {
      return piece.name == "weight" && layout == WeightLayout::IN_OUT ? tensor.t() : tensor;
    };
    const at::Tensor& expected = piece.name == "weight" ? whole->weight : whole->bias;
    EXPECT_TRUE(piece.tensor.equal(piece_of(in_layout(expected), piece.partition))) << piece.name;
    expect_near(piece.tensor.grad(), piece_of(in_layout(expected.grad()), piece.partition), tolerance,
                piece.name.c_str());
  }
}

struct Setting {
  bool sequence_parallel = false;
  WeightLayout layout = WeightLayout::OUT_IN;
  at::ScalarType type = at::kDouble;
  double tolerance = 1e-13;
};

void compare_column(const Setting& setting, const ProcessGroup& group) {
  nn::Linear whole = reference(setting.type, setting.layout);
  torch::manual_seed(5);
  const ColumnParallelLinearOptions options{.sequence_parallel = setting.sequence_parallel,
                                            .layout = setting.layout};
  ColumnParallelLinear layer(IN, OUT, group, options);
  layer->to(setting.type);
  const at::Tensor x = leaf(random_values({TOKENS, 2, IN}, 1, setting.type));
  const at::Tensor slope = random_values({TOKENS, 2, OUT}, 2, setting.type);
  const at::Tensor expected = whole(x);
  (expected * slope).sum().backward();

  const at::Tensor own = leaf(setting.sequence_parallel ? own_rows(x, group) : x);
  const at::Tensor y = layer(own);
  expect_near(y, own_columns(expected, group), setting.tolerance, "output");
  (y * own_columns(slope, group)).sum().backward();
  expect_near(own.grad(), setting.sequence_parallel ? own_rows(x.grad(), group) : x.grad(), setting.tolerance,
              "gradient of the input");
  expect_parts(*layer, whole, setting.layout, setting.tolerance);
}

void compare_row(const Setting& setting, const ProcessGroup& group) {
  nn::Linear whole = reference(setting.type, setting.layout);
  torch::manual_seed(5);
  const RowParallelLinearOptions options{.sequence_parallel = setting.sequence_parallel,
                                         .layout = setting.layout};
  RowParallelLinear layer(IN, OUT, group, options);
  layer->to(setting.type);
  const at::Tensor x = leaf(random_values({TOKENS, 2, IN}, 3, setting.type));
  const at::Tensor slope = random_values({TOKENS, 2, OUT}, 4, setting.type);
  const at::Tensor expected = whole(x);
  (expected * slope).sum().backward();

  const at::Tensor own = leaf(own_columns(x, group));
  const at::Tensor y = layer(own);
  const auto part = [&](const at::Tensor& of) {
    return setting.sequence_parallel ? own_rows(of, group) : of;
  };
  expect_near(y, part(expected), setting.tolerance, "output");
  (y * part(slope)).sum().backward();
  expect_near(own.grad(), own_columns(x.grad(), group), setting.tolerance, "gradient of the input");
  expect_parts(*layer, whole, setting.layout, setting.tolerance);
  expect_near(layer->bias.grad(), whole->bias.grad(), setting.tolerance, "gradient of the bias");
}

void compare_all(const Setting& setting, const ProcessGroup& group) {
  compare_column(setting, group);
  compare_row(setting, group);
}

RANKS_TEST(ParallelLinear, IsOneLinearLayer, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  torch::set_num_threads(1);
  compare_all({}, world());
  compare_all({.layout = WeightLayout::IN_OUT}, world());
  compare_all({.sequence_parallel = true}, world());
  compare_all({.sequence_parallel = true, .layout = WeightLayout::IN_OUT}, world());
  compare_all({.type = at::kFloat, .tolerance = 1e-5}, world());
  compare_all({.type = at::kBFloat16, .tolerance = 0.05}, world());
}

// By hand: x = (1, 2), weights 1, 2, 3, ... in reading order.
RANKS_TEST(ParallelLinear, ByHand, Ranks(2)) {
  const auto count = [](const at::Tensor& whole) {
    whole.copy_(at::arange(1, whole.numel() + 1).view(whole.sizes()));
  };
  ColumnParallelLinear column(2, 2, world(), ColumnParallelLinearOptions{.init = count});
  const at::Tensor x = leaf(at::tensor(std::vector<float>{1.0F, 2.0F}).view({1, 2}));
  const at::Tensor y = column(x);
  EXPECT_EQ(y.item<float>(), rank() == 0 ? 1 + 4 : 3 + 8);  // rows (1, 2) and (3, 4)
  (y * (rank() + 1)).sum().backward();
  EXPECT_TRUE(x.grad().equal(at::tensor(std::vector<float>{1.0F + 2 * 3, 2.0F + 2 * 4}).view({1, 2})));
  EXPECT_TRUE(column->weight.grad().equal(x.detach() * (rank() + 1)));
  EXPECT_EQ(column->bias.grad().item<float>(), rank() + 1);

  RowParallelLinear row(2, 2, world(), RowParallelLinearOptions{.init = count});
  const at::Tensor own = leaf(at::full({1, 1}, rank() + 1.0F));
  const at::Tensor z = row(own);  // columns (1, 3) and (2, 4)
  EXPECT_TRUE(z.equal(at::tensor(std::vector<float>{1.0F + 4, 3.0F + 8}).view({1, 2})));
  z.sum().backward();
  EXPECT_EQ(own.grad().item<float>(), rank() == 0 ? 1 + 3 : 2 + 4);
  EXPECT_TRUE(row->weight.grad().equal(at::full({2, 1}, rank() + 1.0F)));
}

RANKS_TEST(ParallelLinear, GathersAndScattersAtItsEnds, Ranks(1, 2, 3, 4)) {
  torch::set_num_threads(1);
  nn::Linear whole = reference();
  torch::manual_seed(5);
  ColumnParallelLinear column(IN, OUT, world(), ColumnParallelLinearOptions{.gather_output = true});
  torch::manual_seed(5);
  RowParallelLinear row(IN, OUT, world(), RowParallelLinearOptions{.input_is_parallel = false});
  column->to(at::kDouble);
  row->to(at::kDouble);
  const at::Tensor x = leaf(random_values({TOKENS, IN}, 1));
  whole(x).square().sum().backward();
  for (const auto& layer :
       {std::function<at::Tensor(at::Tensor)>([&](const at::Tensor& in) { return column(in); }),
        std::function<at::Tensor(at::Tensor)>([&](const at::Tensor& in) { return row(in); })}) {
    const at::Tensor in = leaf(x);
    const at::Tensor out = layer(in);
    expect_near(out, whole(x), 1e-13, "output");
    out.square().sum().backward();
    expect_near(in.grad(), x.grad(), 1e-13, "gradient of the input");
  }
  expect_parts(*column, whole, WeightLayout::OUT_IN, 1e-13);
  expect_parts(*row, whole, WeightLayout::OUT_IN, 1e-13);
}

// Two blocks of outputs: of each, a rank has its part. Without a bias, and with an input that needs no
// gradient.
RANKS_TEST(ParallelLinear, CutsBlocksOfOutputsByThemselves, Ranks(1, 2, 4)) {
  torch::manual_seed(5);
  const ColumnParallelLinearOptions options{.bias = false, .blocks = {16, 8}};
  ColumnParallelLinear layer(IN, OUT, world(), options);
  layer->to(at::kDouble);
  nn::Linear whole = reference();
  const at::Tensor x = random_values({TOKENS, IN}, 1);
  const at::Tensor expected = at::matmul(x, whole->weight.t());
  const at::Tensor own = at::cat(
      {own_columns(expected.narrow(1, 0, 16), world()), own_columns(expected.narrow(1, 16, 8), world())}, 1);
  expect_near(layer(x), own, 1e-13, "output");
  layer(x).sum().backward();
  expect_near(layer->weight.grad(), x.sum(0).expand({OUT / size(), IN}), 1e-13, "gradient of the weight");
  EXPECT_EQ(layer->pieces().size(), 1);
  const at::NoGradGuard no_grad;
  expect_near(layer(x), own, 1e-13, "output without gradients");
}

RANKS_TEST(ParallelLinear, TakesPartInAutocast, Ranks(1, 2)) {
  nn::Linear whole = reference(at::kFloat);
  torch::manual_seed(5);
  ColumnParallelLinear column(IN, OUT, world());
  RowParallelLinear row(OUT, IN, world());
  const at::Tensor x = leaf(random_values({TOKENS, IN}, 1, at::kFloat));
  at::Tensor h, y;
  {
    const auto mixed = autocast(at::kCPU, at::kBFloat16);
    h = column(x);
    y = row(h);
  }
  EXPECT_EQ(h.scalar_type(), at::kBFloat16);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  expect_near(h, own_columns(whole(x), world()), 0.02, "output");
  y.to(at::kFloat).sum().backward();
  EXPECT_EQ(column->weight.grad().scalar_type(), at::kFloat);
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
}

RANKS_TEST(ParallelLinear, OtherBatchesOnOtherRanksAreNamed, Ranks(2, 3), Backends("shm", "tcp")) {
  RowParallelLinear row(12, 4, world());
  EXPECT_THAT(
      [&] {
        row(at::ones({2 + rank() / (size() - 1), 12 / size()}));
      },
      ThrowsMessage<Mismatch>(
          AllOf(HasSubstr("for a tensor-parallel layer"), HasSubstr("take the same batches"))));
}

RANKS_TEST(ParallelLinear, RefusesWhatCannotBeSharedOut, Ranks(2, 4)) {
  const auto refuses = [&](const auto& call, const std::string& why) {
    EXPECT_THAT(call, ThrowsMessage<InvalidArgument>(HasSubstr(why)));
  };
  refuses([&] { ColumnParallelLinear(4, 9, world()); },
          str("out_features is 9, which ", size(), " ranks do not divide"));
  refuses(
      [&] {
        ColumnParallelLinear(4, 8, world(), ColumnParallelLinearOptions{.blocks = {5, 3}});
      },
      "a block of out_features is 5");
  refuses(
      [&] {
        ColumnParallelLinear(4, 12, world(), ColumnParallelLinearOptions{.blocks = {4, 4}});
      },
      "the blocks add up to 8, and out_features is 12");
  refuses([&] { RowParallelLinear(7, 4, world()); }, str("in_features is 7, which ", size(), " ranks"));
  refuses([&] { RowParallelLinear(0, 4, world()); }, "at least 1");
  const RowParallelLinearOptions contradiction{.input_is_parallel = false, .sequence_parallel = true};
  refuses([&] { RowParallelLinear(8, 4, world(), contradiction); }, "input_is_parallel is false");

  ColumnParallelLinear column(4, 8, world());
  refuses([&] { column(at::ones({2, 5})); }, "the input has sizes [2, 5]; expected [..., 4]");
  RowParallelLinear row(8, 4, world(), RowParallelLinearOptions{.sequence_parallel = true});
  refuses([&] { row(at::ones({5, 8 / size()})); }, str(size(), " ranks do not divide 5"));
  const at::Tensor x = leaf(at::ones({2, 4}));
  const at::Tensor y = column(x);
  refuses([&] { torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true); }, "create_graph");
}

}  // namespace
}  // namespace linear_layers
}  // namespace lockstep::tensor_parallel
