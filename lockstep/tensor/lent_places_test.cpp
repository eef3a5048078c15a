#include "lockstep/tensor/lent_places.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <thread>

#include "lockstep/tensor/caching_allocator.h"

namespace lockstep {
namespace {

constexpr std::int64_t COUNT = 1 << 16;  // floats, 256 KiB

struct LentPlaces : ::testing::Test {
  LentPlaces() { install_caching_allocator(); }
  ~LentPlaces() override { withdraw_places(this); }
  LentPlaces(const LentPlaces&) = delete;
  LentPlaces& operator=(const LentPlaces&) = delete;

  void offer(const at::Tensor& flat) { offer_place(this, flat.data_ptr(), flat.nbytes(), flat); }
};

TEST_F(LentPlaces, GoToTheNextTensorOfTheirSize) {
  const at::Tensor flat = at::zeros({COUNT});
  offer(flat);
  EXPECT_FALSE(is_lent(flat.data_ptr()));
  EXPECT_NE(at::empty({COUNT + 1}).data_ptr(), flat.data_ptr());
  at::Tensor x = at::full({COUNT}, 3.0);
  EXPECT_EQ(x.data_ptr(), flat.data_ptr());
  EXPECT_EQ(flat[COUNT - 1].item<float>(), 3);
  EXPECT_TRUE(is_lent(flat.data_ptr()));
  EXPECT_NE(at::empty({COUNT}).data_ptr(), flat.data_ptr());  // one offer, one loan
  const at::Tensor view = x.view({2, -1});
  x.reset();
  EXPECT_TRUE(is_lent(flat.data_ptr()));  // as long as anybody has the storage
}

TEST_F(LentPlaces, ComeBackWithTheLastReferenceOnAnyThread) {
  const at::Tensor flat = at::zeros({COUNT});
  offer(flat);
  at::Tensor x = at::empty({COUNT});
  std::thread([&] { x.reset(); }).join();
  EXPECT_FALSE(is_lent(flat.data_ptr()));
  offer(flat);
  EXPECT_EQ(at::empty({COUNT}).data_ptr(), flat.data_ptr());
}

TEST_F(LentPlaces, AreTakenInTheOrderOfTheOffers) {
  const at::Tensor a = at::zeros({COUNT});
  const at::Tensor b = at::zeros({COUNT});
  offer(a);
  offer(b);
  const at::Tensor x = at::empty({COUNT});
  const at::Tensor y = at::empty({COUNT});
  EXPECT_EQ(x.data_ptr(), a.data_ptr());
  EXPECT_EQ(y.data_ptr(), b.data_ptr());
}

TEST_F(LentPlaces, SkipTensorsThatAreMadeBefore) {
  const at::Tensor a = at::zeros({COUNT});
  const at::Tensor b = at::zeros({COUNT});
  offer_place(this, a.data_ptr(), a.nbytes(), a, 2);
  offer_place(this, b.data_ptr(), b.nbytes(), b, 1);
  const at::Tensor first = at::empty({COUNT});
  const at::Tensor other = at::empty({COUNT + 1});
  const at::Tensor second = at::empty({COUNT});
  const at::Tensor third = at::empty({COUNT});
  EXPECT_FALSE(first.data_ptr() == a.data_ptr() || first.data_ptr() == b.data_ptr());
  EXPECT_EQ(second.data_ptr(), b.data_ptr());
  EXPECT_EQ(third.data_ptr(), a.data_ptr());
}

TEST_F(LentPlaces, NumbersTensorsOfOneSizeWhileTheyAreWatched) {
  const at::Tensor before = at::empty({COUNT});
  watch_tensors(this);
  const at::Tensor flat = at::empty({COUNT});
  { const at::Tensor gone = at::empty({COUNT}); }
  const at::Tensor other = at::empty({COUNT + 64});
  const at::Tensor last = at::empty({COUNT});  // perhaps in the memory of the one that is gone
  EXPECT_EQ(number_of_tensor(this, before), std::nullopt);
  EXPECT_EQ(number_of_tensor(this, flat), 0);
  EXPECT_EQ(number_of_tensor(this, other), 0);
  EXPECT_EQ(number_of_tensor(this, last), 2);
  EXPECT_EQ(number_of_tensor(this, last.narrow(0, 0, 1 << 15)), std::nullopt);
  EXPECT_EQ(number_of_tensor(&flat, last), std::nullopt) << "somebody else's watch";
  std::thread([&] { EXPECT_EQ(number_of_tensor(this, last), std::nullopt); }).join();
  stop_watching(this);
  EXPECT_EQ(number_of_tensor(this, last), std::nullopt);
}

TEST_F(LentPlaces, AreForTheThreadThatOfferedAndUntilWithdrawn) {
  const at::Tensor flat = at::zeros({COUNT});
  offer(flat);
  std::thread([&] { EXPECT_NE(at::empty({COUNT}).data_ptr(), flat.data_ptr()); }).join();
  withdraw_places(&flat);  // somebody else's
  withdraw_places(this);
  EXPECT_NE(at::empty({COUNT}).data_ptr(), flat.data_ptr());
}

TEST_F(LentPlaces, KeepTheirOwnerAlive) {
  std::vector<float> memory(COUNT + 16);
  float* aligned =
      memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) / sizeof(float);
  bool is_gone = false;
  at::Tensor flat = at::from_blob(aligned, {COUNT}, [&](void*) { is_gone = true; });
  offer(flat);
  flat.reset();
  at::Tensor x = at::empty({COUNT});
  EXPECT_EQ(x.data_ptr(), aligned);
  EXPECT_FALSE(is_gone);
  x.reset();
  EXPECT_TRUE(is_gone);
}

TEST_F(LentPlaces, AreNotLentTwice) {
  const at::Tensor flat = at::zeros({COUNT});
  offer(flat);
  const at::Tensor x = at::empty({COUNT});
  offer(flat);
  EXPECT_NE(at::empty({COUNT}).data_ptr(), flat.data_ptr());
  EXPECT_TRUE(is_lent(flat.data_ptr()));
}

}  // namespace
}  // namespace lockstep
