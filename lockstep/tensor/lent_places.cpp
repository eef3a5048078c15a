#include "lockstep/tensor/lent_places.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

struct Offer {
  const void* who;
  void* place;
  std::size_t bytes;
  at::Tensor owner;
  std::size_t skip;  // number of tensors of this size to be made before the one that the place is for
};

struct Made {
  const void* block;
  std::size_t bytes;
};

struct Watch {
  const void* who;
  std::vector<Made> made;
};

constexpr std::size_t MOST_WATCHED = 1 << 16;

thread_local std::vector<Offer> offers;
thread_local std::vector<Watch> watches;

struct Loans {
  std::atomic<std::size_t> count{0};  // so that a free of other memory costs one load
  std::mutex mutex;
  std::unordered_map<const void*, at::Tensor> owners;  // by place
};

// Outlives static destructors, because tensors do.
Loans& loans() {
  static auto* const instance = new Loans;
  return *instance;
}

}  // namespace

void offer_place(const void* who, void* place, std::size_t bytes, at::Tensor owner, std::size_t skip) {
  offers.push_back({who, place, bytes, std::move(owner), skip});
}

void withdraw_places(const void* who) {
  std::erase_if(offers, [who](const Offer& offer) { return offer.who == who; });
}

void withdraw_place(const void* place) {
  std::erase_if(offers, [place](const Offer& offer) { return offer.place == place; });
}

bool is_lent(const void* place) {
  Loans& all = loans();
  if (all.count.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(all.mutex);
  return all.owners.contains(place);
}

void watch_tensors(const void* who) {
  stop_watching(who);
  watches.push_back({who, {}});
}

void stop_watching(const void* who) {
  std::erase_if(watches, [who](const Watch& watch) { return watch.who == who; });
}

std::optional<std::size_t> number_of_tensor(const void* who, const at::Tensor& tensor) {
  const auto watch =
      std::find_if(watches.begin(), watches.end(), [who](const Watch& w) { return w.who == who; });
  if (watch == watches.end()) return std::nullopt;
  const auto& made = watch->made;
  const void* block = tensor.const_data_ptr();
  // The last one counts, because earlier tensors in the same memory are gone.
  const auto last = std::find_if(made.rbegin(), made.rend(), [&](const Made& m) { return m.block == block; });
  if (last == made.rend() || last->bytes != tensor.nbytes()) return std::nullopt;
  const auto is_equal = [&](const Made& m) { return m.bytes == last->bytes; };
  return static_cast<std::size_t>(std::count_if(made.begin(), std::prev(last.base()), is_equal));
}

void note_tensor(std::size_t bytes, const void* block) {
  for (Watch& watch : watches) {
    if (watch.made.size() < MOST_WATCHED) watch.made.push_back({block, bytes});
  }
}

void* take_offered_place(std::size_t bytes) {
  if (offers.empty()) return nullptr;
  auto offer = offers.end();
  for (auto it = offers.begin(); it != offers.end(); ++it) {
    if (it->bytes != bytes) continue;
    if (it->skip > 0) {
      --it->skip;
    } else if (offer == offers.end()) {
      offer = it;
    }
  }
  if (offer == offers.end()) return nullptr;
  void* place = offer->place;
  Loans& all = loans();
  const std::lock_guard lock(all.mutex);
  const bool is_new = all.owners.try_emplace(place, std::move(offer->owner)).second;
  offers.erase(offer);
  if (!is_new) return nullptr;  // the place was offered although it is lent
  all.count.fetch_add(1, std::memory_order_release);
  return place;
}

bool return_lent_place(void* block) {
  Loans& all = loans();
  if (all.count.load(std::memory_order_acquire) == 0) return false;
  // destroyed after the lock is released, because the last reference returns to this function
  at::Tensor owner;
  const std::lock_guard lock(all.mutex);
  const auto loan = all.owners.find(block);
  if (loan == all.owners.end()) return false;
  owner = std::move(loan->second);
  all.owners.erase(loan);
  all.count.fetch_sub(1, std::memory_order_release);
  return true;
}

void lent_places_before_fork() { loans().mutex.lock(); }
void lent_places_after_fork() { loans().mutex.unlock(); }

}  // namespace lockstep
