// GradScaler against Python's own, call by call.
#include "lockstep/amp/grad_scaler.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <limits>
#include <random>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "testing/python.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

constexpr double INFINITE = std::numeric_limits<double>::infinity();
constexpr double NOT_A_NUMBER = std::numeric_limits<double>::quiet_NaN();

// Programs are words: what is called, on two optimisers with one parameter each, until an error. Most follow
// the rules.
//
//   zN      zero_grad of optimiser N          sN=G    scale(loss).backward(), where the loss's gradient is G
//   uN tN   unscale_ and step                 p       update()        p=V  update(V)
//   g=F b=F i=N   set_growth_factor, set_backoff_factor, set_growth_interval
std::string random_program(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<std::string>& words) { return words[random() % words.size()]; };
  const auto chance = [&](unsigned percent) { return random() % 100 < percent; };
  std::string program;
  const auto add = [&](const std::string& word) { program += " " + word; };
  for (int iteration = 0; iteration < 12; ++iteration) {
    for (const char* const n : {"0", "1"}) {
      if (chance(10)) continue;
      add(std::string("z") + n);
      if (chance(98))
        add(std::string("s") + n + "=" + pick({"1", "-2", "0.5", "3", "inf", "nan", "0.25", "-8"}));
      if (chance(20)) add(std::string("s") + n + "=" + pick({"1", "0.125"}));
      if (chance(30)) add(std::string("u") + n);
      if (chance(97)) add(std::string("t") + n);
    }
    if (chance(5)) add(pick({"u0", "t1", "p", "p=32", "p=3", "g=4", "b=0.25", "i=1", "i=3"}));
    if (chance(97)) add("p");
  }
  return program;
}

const char* const PYTHON = R"(
import sys, torch
for line in open(sys.argv[1]):
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2)
    w = [torch.full((3,), float(i + 1), requires_grad=True) for i in range(2)]
    opt = [torch.optim.SGD([p], lr=0.5) for p in w]
    said = []
    for word in line.split():
        verb, _, value = word.partition("=")
        n = int(verb[1]) if len(verb) > 1 else 0
        try:
            if verb[0] == "z": opt[n].zero_grad()
            elif verb[0] == "s": scaler.scale((w[n] * torch.tensor([1.0, float(value), 2.0])).sum()).backward()
            elif verb[0] == "u": scaler.unscale_(opt[n])
            elif verb[0] == "t": scaler.step(opt[n])
            elif word == "p": scaler.update()
            elif verb[0] == "p": scaler.update(float(value))
            elif verb[0] == "g": scaler.set_growth_factor(float(value))
            elif verb[0] == "b": scaler.set_backoff_factor(float(value))
            elif verb[0] == "i": scaler.set_growth_interval(int(value))
        except (RuntimeError, AssertionError):
            said.append(word + " fails")
            break
        said.append("%s %.9g %d %.9g %.9g" % (word, scaler.get_scale(), scaler._get_growth_tracker(), w[0][1], w[1][1]))
    print("; ".join(said))
)";

// What happens after each word, in the words of the Python program above.
std::string run(const std::string& program) {
  GradScaler scaler({.init_scale = 16, .growth_interval = 2});
  const std::vector<at::Tensor> w = {torch::full({3}, 1.0, torch::requires_grad()),
                                     torch::full({3}, 2.0, torch::requires_grad())};
  std::vector<torch::optim::SGD> opt;
  for (const at::Tensor& one : w) opt.emplace_back(std::vector{one}, 0.5);
  std::istringstream words(program);
  std::ostringstream said;
  for (std::string word; words >> word;) {
    if (said.tellp() > 0) said << "; ";
    const auto n = static_cast<std::size_t>(word.size() > 1 && word[1] == '1');
    const auto equals = word.find('=');
    const double value = equals == std::string::npos ? 0 : std::stod(word.substr(equals + 1));
    try {
      switch (word[0]) {
        case 'z': opt[n].zero_grad(); break;
        case 's':
          scaler.scale((w[n] * torch::tensor({1.0F, static_cast<float>(value), 2.0F})).sum()).backward();
          break;
        case 'u': scaler.unscale_(opt[n]); break;
        case 't': scaler.step(opt[n]); break;
        case 'p': equals == std::string::npos ? scaler.update() : scaler.update(value); break;
        case 'g': scaler.set_growth_factor(value); break;
        case 'b': scaler.set_backoff_factor(value); break;
        default: scaler.set_growth_interval(static_cast<std::int64_t>(value)); break;
      }
    } catch (const InvalidArgument&) {
      said << word << " fails";
      break;
    }
    char numbers[128];
    std::snprintf(numbers, sizeof numbers, " %.9g %d %.9g %.9g", scaler.get_scale(),
                  scaler.state_dict()[4].second.item<int>(), w[0][1].item<double>(), w[1][1].item<double>());
    said << word << numbers;
  }
  return said.str();
}

TEST(GradScaler, DoesWhatPythonsDoes) {
  std::string programs;
  std::ostringstream ours;
  for (unsigned seed = 0; seed < 200; ++seed) {
    const std::string program = random_program(seed);
    programs += program + "\n";
    ours << run(program) << "\n";
  }
  const testing::TempFolder folder;
  const std::string theirs = testing::run_python(PYTHON, {folder.write("programs", programs)});
  std::istringstream our_lines(ours.str()), their_lines(theirs);
  int compared = 0, failing = 0;
  for (std::string our, their; std::getline(our_lines, our) && std::getline(their_lines, their); ++compared) {
    EXPECT_EQ(our, their) << "program " << compared;
    failing += our.find("fails") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(compared, 200);
  EXPECT_GT(failing, 20);  // programs that break the rules are there, and programs that do not
  EXPECT_LT(failing, 180);
}

struct Scaled {
  at::Tensor w = torch::ones({2}, torch::requires_grad());
  at::Tensor v = torch::ones({3}, torch::requires_grad());
  torch::optim::SGD optimizer{{w, v}, 1.0};
  // One iteration in which the gradient of v is 1, 1, `last`.
  bool step(GradScaler& scaler, double last) {
    optimizer.zero_grad();
    scaler.scale(w.sum() + (v * torch::tensor({1.0F, 1.0F, static_cast<float>(last)})).sum()).backward();
    const bool stepped = scaler.step(optimizer);
    scaler.update();
    return stepped;
  }
};

TEST(GradScaler, NamesTheFirstParameterThatOverflowed) {
  Scaled model;
  GradScaler scaler({}, {.parameters = {{"w", model.w}, {"head.v", model.v}}});
  EXPECT_TRUE(model.step(scaler, 1));
  EXPECT_FALSE(scaler.last_overflow());
  EXPECT_FALSE(model.step(scaler, INFINITE));
  EXPECT_FALSE(model.step(scaler, NOT_A_NUMBER));
  ASSERT_TRUE(scaler.last_overflow());
  EXPECT_EQ(scaler.last_overflow()->parameter, "head.v");
  EXPECT_EQ(scaler.last_overflow()->rank, 0);
  EXPECT_EQ(scaler.last_overflow()->skips_in_a_row, 2);
  EXPECT_EQ(scaler.get_scale(), 16384);
  EXPECT_TRUE(model.w.equal(torch::zeros({2})));  // one step of two was taken before

  GradScaler nameless;
  EXPECT_FALSE(model.step(nameless, INFINITE));
  EXPECT_EQ(nameless.last_overflow()->parameter, "parameter 1 of group 0 ([3], Float)");
}

TEST(GradScaler, WarnsOfARunThatOnlySkips) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, const std::string& line) { lines.push_back(line); });
  Scaled model;
  GradScaler scaler({}, {.parameters = {{"w", model.w}, {"head.v", model.v}}});
  for (int i = 0; i < 19; ++i) model.step(scaler, INFINITE);
  EXPECT_TRUE(lines.empty());
  model.step(scaler, INFINITE);
  set_log_sink({});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("20 steps in a row"));
  EXPECT_THAT(lines[0], HasSubstr("\"head.v\" was not finite on rank 0"));
}

TEST(GradScaler, FollowsTheOtherConventions) {
  Scaled model;
  GradScaler scaler(deepspeed_loss_scale({.init_scale = 16, .growth_interval = 2, .hysteresis = 2}));
  std::vector<double> trace;
  for (const char step : std::string("CCCOOCOCCCCC")) {
    model.step(scaler, step == 'O' ? INFINITE : 0);
    trace.push_back(scaler.get_scale());
  }
  EXPECT_THAT(trace, ::testing::ElementsAre(16, 16, 32, 32, 16, 16, 8, 8, 8, 16, 16, 32));
}

TEST(GradScaler, AHalfLossIsScaledInFloat32) {
  GradScaler scaler;
  const at::Tensor loss = torch::full({}, 3.0, at::kHalf);  // times 65536 it would be infinite in float16
  EXPECT_EQ(scaler.scale(loss).item<double>(), 3.0 * 65536);
  const auto several = scaler.scale(std::vector<at::Tensor>{torch::ones({2}), torch::ones({3})});
  EXPECT_TRUE(several[1].equal(torch::full({3}, 65536.0F)));
}

TEST(GradScaler, UnscalesEveryKindOfGradient) {
  const auto leaf = [](at::ScalarType type) { return torch::ones({2}, type).set_requires_grad(true); };
  const at::Tensor single = leaf(at::kFloat), brain = leaf(at::kBFloat16), wide = leaf(at::kDouble);
  const at::Tensor table = torch::ones({4, 2}).set_requires_grad(true);
  torch::optim::SGD optimizer({single, brain, wide, table}, 1.0);
  GradScaler scaler({.init_scale = 8});
  const at::Tensor rows = torch::embedding(table, torch::tensor({1, 1}), -1, false, /*sparse=*/true);
  scaler.scale(single.sum() + brain.sum() + wide.sum() + rows.sum()).backward();
  scaler.unscale_(optimizer);
  for (const at::Tensor& one : {single, brain, wide}) EXPECT_TRUE(one.grad().equal(torch::ones_like(one)));
  EXPECT_TRUE(table.grad().is_sparse());
  EXPECT_TRUE(table.grad().to_dense()[1].equal(torch::full({2}, 2.0F)));
}

TEST(GradScaler, RefusesHalfGradients) {
  const at::Tensor half = torch::ones({2}, at::kHalf).set_requires_grad(true);
  torch::optim::SGD optimizer({half}, 1.0);
  GradScaler scaler;
  scaler.scale(half.sum()).backward();
  EXPECT_THAT([&] { scaler.step(optimizer); },
              ThrowsMessage<InvalidArgument>(HasSubstr("Attempting to unscale FP16 gradients")));
}

TEST(GradScaler, DisabledItIsNotThere) {
  Scaled model;
  GradScaler scaler({}, {.enabled = false});
  EXPECT_EQ(scaler.get_scale(), 1);
  EXPECT_TRUE(model.step(scaler, INFINITE));
  EXPECT_TRUE(model.w.equal(torch::zeros({2})));
  EXPECT_TRUE(scaler.state_dict().empty());
  scaler.load_state_dict({});
}

TEST(GradScaler, GoesOnFromASavedState) {
  Scaled model;
  GradScaler first(deepspeed_loss_scale({.init_scale = 16, .growth_interval = 2, .hysteresis = 2}));
  for (const double last : {0.0, 0.0, INFINITE}) model.step(first, last);
  GradScaler second(deepspeed_loss_scale({.hysteresis = 2}));
  second.load_state_dict(first.state_dict());
  for (const double last : {INFINITE, 0.0, 0.0, 0.0, 0.0, INFINITE}) {
    model.step(first, last);
    model.step(second, last);
    EXPECT_EQ(first.get_scale(), second.get_scale());
  }
  EXPECT_EQ(second.get_growth_interval(), 2);

  auto state = first.state_dict();
  EXPECT_THAT([&] { second.load_state_dict({}); }, ThrowsMessage<InvalidArgument>(HasSubstr("is empty")));
  state.erase(state.begin() + 4);
  EXPECT_THAT([&] { second.load_state_dict(state); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no \"_growth_tracker\"")));
}

}  // namespace
}  // namespace lockstep
