// Every verb of the C interface with every dtype, blocking and not, against formulas.
#include "lockstep/c/collectives.h"

#include <cstring>
#include <memory>
#include <vector>

#include "testing/c_calls.h"
#include "testing/lacking.h"
#include "testing/ranks.h"
#include "testing/reference.h"

namespace lockstep {
namespace c_collectives_test {

using reference::nearest;
using testing::CWorld;
using testing::ok;

// A small number, which every dtype has and which adds up exactly. A bool is whether it is odd.
template <typename T> T number(int value) {
  if constexpr (reference::IS_HALF<T>) {
    return nearest<T>(value);
  } else if constexpr (std::is_same_v<T, bool>) {
    return value % 2 != 0;
  } else if constexpr (reference::IS_COMPLEX<T>) {
    return {static_cast<typename T::value_type>(value), static_cast<typename T::value_type>(-value)};
  } else {
    return static_cast<T>(value);
  }
}
// Element i of what rank r gives.
int given(int rank, std::size_t i) { return rank + static_cast<int>(i % 5); }

// A buffer of count elements with a guard behind them; a vector<bool> has no addresses.
template <typename T> class Elements {
 public:
  template <typename Value> Elements(std::size_t count, const Value& value) : count_(count) {
    data_ = std::make_unique<T[]>(count + 1);
    for (std::size_t i = 0; i < count; ++i) data_[i] = number<T>(value(i));
    data_[count] = number<T>(1);
  }
  explicit Elements(std::size_t count) : Elements(count, [](std::size_t /*i*/) { return 0; }) {}
  T* data() { return data_.get(); }
  template <typename Value> bool are(const Value& value) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (!is_same(data_[i], number<T>(value(i)))) return false;
    }
    return is_same(data_[count_], number<T>(1));
  }

 private:
  static bool is_same(const T& a, const T& b) { return std::memcmp(&a, &b, sizeof(T)) == 0; }

  std::size_t count_;
  std::unique_ptr<T[]> data_;
};

// A call that blocks, or one whose work is waited for.
class Call {
 public:
  explicit Call(bool async_op) : async_op_(async_op) {}
  lockstep_work* work() { return async_op_ ? &work_ : nullptr; }
  ::testing::AssertionResult done(int code) {
    if (!async_op_ || code != LOCKSTEP_OK) return ok(code);
    const int waited = lockstep_work_wait(work_, 0);
    if (waited == LOCKSTEP_OK) return ok(lockstep_work_free(work_));
    return ok(waited);
  }

 private:
  const bool async_op_;
  lockstep_work work_ = 0;
};

template <typename T> class Verbs {
 public:
  static constexpr std::size_t COUNT = 7;

  Verbs(lockstep_group group, int rank, int size, bool async_op)
      : group_(group), rank_(rank), size_(size), call_(async_op) {}

  std::size_t ranks() const { return static_cast<std::size_t>(size_); }
  std::size_t counts_of(int rank) const { return static_cast<std::size_t>(rank) * 2 % 5; }  // 0, 2, 4, 1
  std::vector<std::size_t> counts() const {
    std::vector<std::size_t> all;
    for (int r = 0; r < size_; ++r) all.push_back(counts_of(r));
    return all;
  }
  std::size_t offset(int rank) const {
    std::size_t sum = 0;
    for (int r = 0; r < rank; ++r) sum += counts_of(r);
    return sum;
  }
  // The sum over ranks of given(r, i) + more; of bools, whether any is odd.
  int sum(std::size_t i, int more = 0) const {
    int total = 0;
    for (int r = 0; r < size_; ++r) {
      const int value = given(r, i) + more;
      total = std::is_same_v<T, bool> ? total | (value % 2) : total + value;
    }
    return total;
  }
  // Rank and element within its part, of element i of buffers that lie one behind the other.
  std::pair<int, std::size_t> place(std::size_t i) const {
    int rank = 0;
    while (i >= offset(rank + 1)) ++rank;
    return {rank, i - offset(rank)};
  }

  void reductions();
  void broadcast();
  void gathers();
  void reduce_scatters();
  void all_to_alls();
  void of_the_root();
  void messages();

 private:
  const lockstep_group group_;
  const int rank_;
  const int size_;
  const int dtype_ = static_cast<int>(dtype_of<T>());
  Call call_;
};

template <typename T> void Verbs<T>::reductions() {
  const auto mine = [&](std::size_t i) { return given(rank_, i); };
  Elements<T> all(COUNT, mine);
  EXPECT_TRUE(call_.done(lockstep_all_reduce(group_, all.data(), COUNT, dtype_, LOCKSTEP_SUM, call_.work())));
  EXPECT_TRUE(all.are([&](std::size_t i) { return sum(i); }));

  const int root = size_ - 1;
  Elements<T> one(COUNT, mine);
  EXPECT_TRUE(
      call_.done(lockstep_reduce(group_, one.data(), COUNT, dtype_, LOCKSTEP_SUM, root, call_.work())));
  EXPECT_TRUE(one.are([&](std::size_t i) { return rank_ == root ? sum(i) : mine(i); }));

  Elements<T> first(COUNT, mine);
  Elements<T> second(2, mine);
  void* const data[] = {first.data(), second.data()};
  const std::size_t sizes[] = {COUNT, 2};
  EXPECT_TRUE(
      call_.done(lockstep_all_reduce_coalesced(group_, data, sizes, 2, dtype_, LOCKSTEP_SUM, call_.work())));
  EXPECT_TRUE(first.are([&](std::size_t i) { return sum(i); }));
  EXPECT_TRUE(second.are([&](std::size_t i) { return sum(i); }));
}

template <typename T> void Verbs<T>::broadcast() {
  const int root = size_ - 1;
  Elements<T> data(COUNT, [&](std::size_t i) { return given(rank_, i); });
  EXPECT_TRUE(call_.done(lockstep_broadcast(group_, data.data(), COUNT, dtype_, root, call_.work())));
  EXPECT_TRUE(data.are([&](std::size_t i) { return given(root, i); }));
  EXPECT_TRUE(call_.done(lockstep_barrier(group_, call_.work())));
}

template <typename T> void Verbs<T>::gathers() {
  Elements<T> mine(COUNT, [&](std::size_t i) { return given(rank_, i); });
  Elements<T> even(COUNT * ranks());
  EXPECT_TRUE(call_.done(lockstep_all_gather(group_, mine.data(), even.data(), COUNT, dtype_, call_.work())));
  EXPECT_TRUE(even.are([&](std::size_t i) { return given(static_cast<int>(i / COUNT), i % COUNT); }));

  const std::vector<std::size_t> list = counts();
  Elements<T> uneven(offset(size_));
  EXPECT_TRUE(call_.done(
      lockstep_all_gatherv(group_, mine.data(), uneven.data(), list.data(), dtype_, call_.work())));
  EXPECT_TRUE(uneven.are([&](std::size_t i) { return given(place(i).first, place(i).second); }));
}

// Rank r gives given(r, j) + q for element j of rank q's part.
template <typename T> void Verbs<T>::reduce_scatters() {
  Elements<T> even(COUNT * ranks(),
                   [&](std::size_t i) { return given(rank_, i % COUNT) + static_cast<int>(i / COUNT); });
  Elements<T> mine(COUNT);
  EXPECT_TRUE(call_.done(
      lockstep_reduce_scatter(group_, even.data(), mine.data(), COUNT, dtype_, LOCKSTEP_SUM, call_.work())));
  EXPECT_TRUE(mine.are([&](std::size_t i) { return sum(i, rank_); }));

  const std::vector<std::size_t> list = counts();
  Elements<T> uneven(offset(size_),
                     [&](std::size_t i) { return given(rank_, place(i).second) + place(i).first; });
  Elements<T> part(counts_of(rank_));
  EXPECT_TRUE(call_.done(lockstep_reduce_scatterv(group_, uneven.data(), part.data(), list.data(), dtype_,
                                                  LOCKSTEP_SUM, call_.work())));
  EXPECT_TRUE(part.are([&](std::size_t i) { return sum(i, rank_); }));
}

// Element j that rank r has for rank q is r + 2 * q + j.
template <typename T> void Verbs<T>::all_to_alls() {
  Elements<T> input(COUNT * ranks(), [&](std::size_t i) {
    return rank_ + 2 * static_cast<int>(i / COUNT) + static_cast<int>(i % COUNT);
  });
  Elements<T> output(COUNT * ranks());
  EXPECT_TRUE(
      call_.done(lockstep_all_to_all(group_, input.data(), output.data(), COUNT, dtype_, call_.work())));
  EXPECT_TRUE(output.are(
      [&](std::size_t i) { return static_cast<int>(i / COUNT) + 2 * rank_ + static_cast<int>(i % COUNT); }));

  // Rank r has q elements for rank q: so each rank q gets q elements from every rank.
  std::vector<std::size_t> to;
  const std::vector<std::size_t> from(ranks(), static_cast<std::size_t>(rank_));
  for (std::size_t q = 0; q < ranks(); ++q) to.push_back(q);
  Elements<T> sent(ranks() * (ranks() - 1) / 2, [&](std::size_t /*i*/) { return rank_ + 1; });
  Elements<T> received(ranks() * static_cast<std::size_t>(rank_));
  EXPECT_TRUE(call_.done(lockstep_all_to_allv(group_, sent.data(), to.data(), received.data(), from.data(),
                                              dtype_, call_.work())));
  EXPECT_TRUE(received.are([&](std::size_t i) { return static_cast<int>(i) / rank_ + 1; }));
}

template <typename T> void Verbs<T>::of_the_root() {
  const int root = size_ / 2;
  const bool is_root = rank_ == root;
  const std::vector<std::size_t> list = counts();
  const auto of_rank = [&](std::size_t i) { return given(rank_, i); };
  const auto even_of_all = [&](std::size_t i) { return given(static_cast<int>(i / COUNT), i % COUNT); };
  const auto uneven_of_all = [&](std::size_t i) { return given(place(i).first, place(i).second); };
  Elements<T> mine(COUNT, of_rank);
  Elements<T> even(is_root ? COUNT * ranks() : 0);
  EXPECT_TRUE(call_.done(lockstep_gather(group_, mine.data(), is_root ? even.data() : nullptr, COUNT, dtype_,
                                         root, call_.work())));
  EXPECT_TRUE(even.are(even_of_all));
  Elements<T> uneven(is_root ? offset(size_) : 0);
  EXPECT_TRUE(call_.done(lockstep_gatherv(group_, mine.data(), counts_of(rank_), uneven.data(),
                                          is_root ? list.data() : nullptr, dtype_, root, call_.work())));
  EXPECT_TRUE(uneven.are(uneven_of_all));

  Elements<T> all(COUNT * ranks(), even_of_all);
  Elements<T> part(COUNT);
  EXPECT_TRUE(call_.done(lockstep_scatter(group_, is_root ? all.data() : nullptr, part.data(), COUNT, dtype_,
                                          root, call_.work())));
  EXPECT_TRUE(part.are(of_rank));
  Elements<T> parts(offset(size_), uneven_of_all);
  Elements<T> small(counts_of(rank_));
  EXPECT_TRUE(
      call_.done(lockstep_scatterv(group_, is_root ? parts.data() : nullptr, is_root ? list.data() : nullptr,
                                   small.data(), counts_of(rank_), dtype_, root, call_.work())));
  EXPECT_TRUE(small.are(of_rank));
}

// Each rank sends to the next one.
template <typename T> void Verbs<T>::messages() {
  if (size_ == 1) return;  // a rank sends nothing to itself
  const int next = (rank_ + 1) % size_;
  const int before = (rank_ + size_ - 1) % size_;
  Elements<T> mine(COUNT, [&](std::size_t i) { return given(rank_, i); });
  Elements<T> theirs(COUNT);
  Call sent = call_;
  const int code = lockstep_send(group_, mine.data(), COUNT, dtype_, next, 5, sent.work());
  int from = -7;
  EXPECT_TRUE(
      call_.done(lockstep_recv(group_, theirs.data(), COUNT, dtype_, before, 5, &from, call_.work())));
  EXPECT_EQ(from, call_.work() == nullptr ? before : -7);
  EXPECT_TRUE(theirs.are([&](std::size_t i) { return given(before, i); }));
  EXPECT_TRUE(sent.done(code));
}

void check_every_verb(lockstep_group group, int rank, int size) {
  reference::for_each_dtype([&]<typename T>() {
    SCOPED_TRACE(name_of(dtype_of<T>()));
    for (const bool async_op : {false, true}) {
      Verbs<T> verbs(group, rank, size, async_op);
      verbs.reductions();
      verbs.broadcast();
      verbs.gathers();
      verbs.reduce_scatters();
      verbs.all_to_alls();
      verbs.of_the_root();
      verbs.messages();
    }
  });
  EXPECT_TRUE(ok(lockstep_monitored_barrier(group, 0, 1)));
}

RANKS_TEST(CCollectives, EveryVerbAndDtype, Ranks(1, 2, 3, 4), Backends("thread", "shm", "tcp")) {
  const CWorld c(world());
  check_every_verb(c.handle(), rank(), size());
}

RANKS_TEST(CCollectives, EveryVerbAndDtypeAlone, Ranks(1), Backends("self")) {
  check_every_verb(LOCKSTEP_WORLD, rank(), size());
}

RANKS_TEST(CCollectives, EveryOperator, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  const CWorld c(world());
  const auto of = [&](int value, int op) {
    EXPECT_TRUE(ok(lockstep_all_reduce(c.handle(), &value, 1, LOCKSTEP_INT32, op, nullptr)));
    return value;
  };
  const int ranks = size();
  EXPECT_EQ(of(rank() + 1, LOCKSTEP_SUM), ranks * (ranks + 1) / 2);
  EXPECT_EQ(of(2, LOCKSTEP_PRODUCT), 1 << ranks);
  EXPECT_EQ(of(10 + rank(), LOCKSTEP_MIN), 10);
  EXPECT_EQ(of(10 + rank(), LOCKSTEP_MAX), 9 + ranks);
  EXPECT_EQ(of(0xff ^ (1 << rank()), LOCKSTEP_BAND), 0xff ^ ((1 << ranks) - 1));
  EXPECT_EQ(of(1 << rank(), LOCKSTEP_BOR), (1 << ranks) - 1);
  EXPECT_EQ(of(1, LOCKSTEP_BXOR), ranks % 2);
  double mean = rank() + 1;
  EXPECT_TRUE(ok(lockstep_all_reduce(c.handle(), &mean, 1, LOCKSTEP_FLOAT64, LOCKSTEP_AVG, nullptr)));
  EXPECT_EQ(mean, (ranks + 1) / 2.0);
}

// Started in one order on two groups, waited for in the opposite one.
RANKS_TEST(CCollectives, TwoGroupsAtOnceAndWaitsOutOfOrder, Ranks(1, 2, 3, 4), Backends("shm", "tcp")) {
  const CWorld c(world());
  lockstep_group half = 0;
  ASSERT_TRUE(ok(lockstep_split_group(c.handle(), rank() % 2, rank(), nullptr, &half)));
  int half_size = 0;
  EXPECT_TRUE(ok(lockstep_size(half, &half_size)));
  EXPECT_EQ(half_size, (size() + 1 - rank() % 2) / 2);
  constexpr std::size_t CALLS = 6;
  constexpr std::size_t COUNT = 20000;
  std::vector<std::vector<float>> data(CALLS);
  std::vector<lockstep_work> works(CALLS);
  for (std::size_t n = 0; n < CALLS; ++n) {
    data[n].assign(COUNT, static_cast<float>(n + 1));
    ASSERT_TRUE(ok(lockstep_all_reduce(n % 2 == 0 ? c.handle() : half, data[n].data(), COUNT,
                                       LOCKSTEP_FLOAT32, LOCKSTEP_SUM, &works[n])));
    EXPECT_NE(works[n], 0);
  }
  for (std::size_t n = CALLS; n-- > 0;) {
    int done = 0;
    while (n % 3 == 0 && done == 0) ASSERT_TRUE(ok(lockstep_work_test(works[n], &done)));
    EXPECT_TRUE(ok(lockstep_work_wait(works[n], 0)));
    const auto sum = static_cast<float>((n + 1) * static_cast<std::size_t>(n % 2 == 0 ? size() : half_size));
    EXPECT_EQ(data[n], std::vector<float>(COUNT, sum));
    EXPECT_TRUE(ok(lockstep_work_free(works[n])));
  }
  EXPECT_TRUE(ok(lockstep_group_free(half)));
}

RANKS_TEST(CCollectives, AReceiveFromAnybodySaysFromWhom, Ranks(2, 3), Backends("shm", "tcp")) {
  const CWorld c(world());
  int value = rank();
  if (rank() != 0) {
    EXPECT_TRUE(ok(lockstep_send(c.handle(), &value, 1, LOCKSTEP_INT32, 0, 0, nullptr)));
    return;
  }
  for (int n = 1; n < size(); ++n) {
    int from = -1;
    lockstep_work work = 0;
    EXPECT_TRUE(
        ok(lockstep_recv(c.handle(), &value, 1, LOCKSTEP_INT32, LOCKSTEP_ANY_SOURCE, 0, nullptr, &work)));
    EXPECT_TRUE(ok(lockstep_work_wait(work, 0)));
    EXPECT_TRUE(ok(lockstep_work_source(work, &from)));
    EXPECT_EQ(value, from);
    EXPECT_TRUE(ok(lockstep_work_free(work)));
  }
}

}  // namespace c_collectives_test
}  // namespace lockstep
