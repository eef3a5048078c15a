#include "lockstep/parallel/gradients/gradient_places.h"

#include <algorithm>

#include "lockstep/os/block_cache.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/lent_places.h"

namespace lockstep {

constexpr int MOST_WATCHED = 3;

void GradientPlaces::begin_pass(const std::vector<const GradientSlot*>& slots) {
  end_pass();
  if (state_ == State::OFF || !is_caching_allocator_installed()) return;
  // Autograd makes a new gradient in another place than the sum of an old and a new one.
  const auto has_gradient = [](const GradientSlot* slot) { return slot->has_gradient(); };
  const auto with_gradient = std::count_if(slots.begin(), slots.end(), has_gradient);
  is_in_pass_ = true;
  was_wrong_ = false;
  if (state_ == State::OFFERING) {
    for (const Known& known : known_) slots[known.parameter]->offer(this, known.number);
  } else if (with_gradient <= 1) {  // one gradient may exist: the one whose hook begins this backward
    known_.clear();
    watch_tensors(this);
  } else {
    is_in_pass_ = false;
  }
}

void GradientPlaces::end_pass() {
  if (!is_in_pass_) return;
  is_in_pass_ = false;
  withdraw_places(this);
  stop_watching(this);
  if (state_ == State::WATCHING) {
    ++watched_;
    state_ = State::OFFERING;
  } else if (was_wrong_) {
    state_ = watched_ < MOST_WATCHED ? State::WATCHING : State::OFF;
  }
}

void GradientPlaces::note(std::size_t index, const GradientSlot& slot) {
  if (!is_in_pass_ || state_ != State::WATCHING) return;
  const at::Tensor& gradient = slot.parameter().grad();
  if (gradient.nbytes() < BlockCache::SMALLEST) return;
  if (const auto number = number_of_tensor(this, gradient)) known_.push_back({index, *number});
}

void GradientPlaces::missed(std::size_t index) {
  const auto is_it = [index](const Known& known) { return known.parameter == index; };
  if (state_ == State::OFFERING && std::any_of(known_.begin(), known_.end(), is_it)) was_wrong_ = true;
}

void GradientPlaces::mistaken() {
  was_wrong_ = true;
  withdraw_places(this);
}

}  // namespace lockstep
