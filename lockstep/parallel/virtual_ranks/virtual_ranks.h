// virtual_ranks(): loops over the turns of this process's virtual ranks (job/virtual_ranks.h). A training
// loop that runs forward and backward in it gives the same bits on any number of processes.
//
//   init_process_group("auto", {.virtual_ranks = 4});           // on 1, 2, 3 or 4 processes
//   seed_virtual_ranks(42);
//   DistributedSampler sampler(train.size());
//   auto loader = make_data_loader(train, sampler, {.batch_size = 64});     // of one virtual rank
//   for (auto& step : virtual_steps(loader)) {
//     optimizer.zero_grad();
//     for (auto& batch : step) cross_entropy(ddp->forward(batch.data), batch.target).backward();
//     optimizer.step();                                        // .grad is the average over all 4
//   }
//
//   for (const int v : virtual_ranks()) train_on(shares[v]);   // the same turns without a loader
//
// Turn        During a turn the process acts for one virtual rank. .grad, the model's buffers and libtorch's
//             default CPU random numbers are that rank's, and get_virtual_rank() is its number. Each turn has
//             as many averaged backwards of each DistributedDataParallel as the loop has steps: one.
// Average     The backward of the last turn averages over all virtual ranks.
// Random      numbers drawn in a turn are the virtual rank's. Outside of turns they are the process's.
// Streams     of random numbers begin at the state of the process's generator at the first loop, or as
//             seed_virtual_ranks() says.
// Collective  the first loop of a job, and the first one after seed_virtual_ranks() or a load. Processes
//             compare random numbers and threads, because both show in the bits. Mismatch names the process
//             that differs.
// Without     virtual ranks the loop has one turn, this rank's, and does nothing else.
// Leaving     by break or an exception ends the round, and its sums are dropped. The other processes wait for
//             the average, as in any step that one rank skips.
// Throws      InvalidArgument: a loop within a loop; virtual_steps() over a loader that is not for this
//             process's virtual ranks.
// Threads     one loop at a time, on the thread that trains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/parallel/virtual_ranks/virtual_rank_member.h"

namespace lockstep {

// Gives each virtual rank v the random numbers of set_seed(seed, v), and each process those of set_seed(seed,
// 0). So a model made afterwards has the same first weights everywhere. Without virtual ranks it is
// set_seed(seed, get_rank()). Not within a turn: InvalidArgument.
void seed_virtual_ranks(std::uint64_t seed);

namespace detail {

// The turns of one round, in order.
class VirtualRound {
 public:
  VirtualRound();  // begins the first turn
  ~VirtualRound();
  VirtualRound(const VirtualRound&) = delete;
  VirtualRound& operator=(const VirtualRound&) = delete;

  bool is_over() const { return turn_ == ranks_.size(); }
  int virtual_rank() const { return ranks_[turn_]; }
  void end_turn();
  void begin_turn();  // begins the next one, if there is one
  void next() {
    end_turn();
    begin_turn();
  }

 private:
  void leave() noexcept;

  const std::vector<int> ranks_;
  const bool is_virtual_;
  std::size_t turn_ = 0;
  std::vector<std::shared_ptr<VirtualRankMember>> members_;
};

std::size_t local_virtual_rank_count();
void check_loader(
    std::size_t replicas);  // throws InvalidArgument unless it serves this process's virtual ranks

}  // namespace detail

class VirtualRanks {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = int;
    using difference_type = std::ptrdiff_t;
    using pointer = const int*;
    using reference = int;

    explicit Iterator(detail::VirtualRound& round) : round_(&round) {}
    int operator*() const { return round_->virtual_rank(); }
    Iterator& operator++() {
      round_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return round_->is_over(); }

   private:
    detail::VirtualRound* round_;
  };

  // Begins the round, once.
  Iterator begin() { return Iterator(round_.emplace()); }
  std::default_sentinel_t end() const { return {}; }

 private:
  std::optional<detail::VirtualRound> round_;
};

inline VirtualRanks virtual_ranks() { return {}; }

// The steps of an epoch. Each step has one batch for each of this process's virtual ranks, each in its turn.
// The loader gives them one after the other, as a loader with a DistributedSampler does. A step whose loop is
// left, or not run, is skipped.
template <typename Loader> class VirtualSteps {
 public:
  class Step {
   public:
    class Iterator {
     public:
      explicit Iterator(Step& step) : step_(&step) {}
      decltype(auto) operator*() const { return *step_->batch_; }
      Iterator& operator++() {
        step_->round_->end_turn();
        if (step_->left_ > 1) step_->advance();
        step_->round_->begin_turn();
        return *this;
      }
      void operator++(int) { ++*this; }
      bool operator==(std::default_sentinel_t) const { return step_->round_->is_over(); }

     private:
      Step* step_;
    };

    explicit Step(Loader& loader) : batch_(loader.begin()), end_(loader.end()) {}
    Iterator begin() {
      round_.emplace();
      return Iterator(*this);
    }
    std::default_sentinel_t end() const { return {}; }

   private:
    friend class VirtualSteps;
    void advance() {
      ++batch_;
      --left_;
    }
    void pass_over() {
      round_.reset();
      while (left_ > 0 && !(batch_ == end_)) advance();
      left_ = detail::local_virtual_rank_count();
    }

    decltype(std::declval<Loader&>().begin()) batch_;
    decltype(std::declval<Loader&>().end()) end_;
    // number of batches left in this step, including the present one
    std::size_t left_ = detail::local_virtual_rank_count();
    std::optional<detail::VirtualRound> round_;
  };

  class Iterator {
   public:
    explicit Iterator(Loader& loader) : step_(std::make_shared<Step>(loader)) {}
    Step& operator*() const { return *step_; }
    Iterator& operator++() {
      step_->pass_over();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return step_->batch_ == step_->end_; }

   private:
    std::shared_ptr<Step> step_;
  };

  explicit VirtualSteps(Loader& loader) : loader_(&loader) {
    if constexpr (requires { loader.replicas(); }) detail::check_loader(loader.replicas());
  }
  Iterator begin() const { return Iterator(*loader_); }
  std::default_sentinel_t end() const { return {}; }

 private:
  Loader* loader_;
};

// The loader outlives the loop.
template <typename Loader> VirtualSteps<Loader> virtual_steps(Loader& loader) {
  return VirtualSteps<Loader>(loader);
}

}  // namespace lockstep
