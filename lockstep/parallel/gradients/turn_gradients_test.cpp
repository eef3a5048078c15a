#include "lockstep/parallel/gradients/turn_gradients.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

class TurnGradientsOfTwo : public ::testing::Test {
 protected:
  void add(double value) {
    const at::NoGradGuard no_grad;
    at::Tensor& grad = w_.mutable_grad();
    if (grad.defined()) {
      grad.add_(value);
    } else {
      grad = torch::full({2}, value);
    }
  }
  // A round in which virtual rank v adds v + 1, and keeps it.
  void run_round() {
    ASSERT_EQ(gradients_.begin_round(), std::nullopt);
    for (const int v : {0, 1}) {
      kept_[v] = gradients_.begin_turn(v);
      add(v + 1);
      gradients_.keep(v, {v == 1});
    }
    gradients_.end_round();
  }
  double begin_turn(int v) {
    gradients_.begin_turn(v);
    return w_.grad().defined() ? w_.grad()[0].item<double>() : -1;
  }

  at::Tensor w_ = torch::zeros({2}).requires_grad_(true);
  TurnGradients gradients_{{w_}};
  std::map<int, std::vector<bool>> kept_;
};

TEST_F(TurnGradientsOfTwo, BeginAsTheRoundDid) {
  EXPECT_EQ(gradients_.begin_round(), std::nullopt);
  EXPECT_EQ(begin_turn(0), -1);
  add(5);
  EXPECT_EQ(begin_turn(1), -1);  // undefined again
  gradients_.end_round();

  w_.mutable_grad() = torch::full({2}, 3.0);
  const at::Tensor own = w_.grad();
  EXPECT_EQ(gradients_.begin_round(), std::nullopt);
  EXPECT_EQ(begin_turn(0), 3);
  add(5);
  EXPECT_EQ(begin_turn(1), 3);
  EXPECT_TRUE(w_.grad().is_same(own));
}

TEST_F(TurnGradientsOfTwo, GoOnWhereTheyWereKept) {
  run_round();
  run_round();
  EXPECT_EQ(kept_[0], std::vector<bool>{false});
  EXPECT_EQ(kept_[1], std::vector<bool>{true});
  ASSERT_EQ(gradients_.begin_round(), std::nullopt);
  EXPECT_EQ(begin_turn(0), 2);  // twice 1
  EXPECT_EQ(begin_turn(1), 4);  // twice 2
}

TEST_F(TurnGradientsOfTwo, AreDroppedByZeroGrad) {
  run_round();
  w_.mutable_grad().reset();
  ASSERT_EQ(gradients_.begin_round(), std::nullopt);
  EXPECT_EQ(begin_turn(0), -1);
  EXPECT_EQ(begin_turn(1), -1);
}

TEST_F(TurnGradientsOfTwo, AreNotChangedBetweenRounds) {
  run_round();
  w_.mutable_grad().mul_(2);
  EXPECT_THAT(gradients_.begin_round().value_or(""), HasSubstr("gradients were changed between two rounds"));
}

}  // namespace
}  // namespace lockstep
