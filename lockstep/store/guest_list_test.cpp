#include "lockstep/store/guest_list.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr GuestList::Limits FEW = {.of_one_address = 3, .in_all = 5};

TEST(GuestList, NobodyGoesWhileThereArePlaces) {
  GuestList guests(FEW);
  for (const int fd : {10, 11, 12}) {
    EXPECT_EQ(guests.in_the_way_of("a"), std::nullopt);
    guests.enter(fd, "a");
  }
  EXPECT_EQ(guests.in_the_way_of("b"), std::nullopt) << "the places of a are none of b's";
  EXPECT_EQ(guests.in_the_way_of("a"), 10);
}

TEST(GuestList, TheOldestGoesWhateverItsDescriptor) {
  GuestList guests(FEW);
  for (const int fd : {12, 10, 11}) guests.enter(fd, "a");
  EXPECT_EQ(guests.in_the_way_of("a"), 12);
  guests.leave(12);
  EXPECT_EQ(guests.in_the_way_of("a"), std::nullopt);
  guests.enter(12, "a");
  EXPECT_EQ(guests.in_the_way_of("a"), 10);
}

TEST(GuestList, WhoHasSpokenGoesLast) {
  GuestList guests(FEW);
  for (const int fd : {10, 11, 12}) guests.enter(fd, "a");
  guests.spoke(10);
  EXPECT_EQ(guests.in_the_way_of("a"), 11);
  guests.spoke(11);
  guests.spoke(12);
  EXPECT_EQ(guests.in_the_way_of("a"), 10);
}

TEST(GuestList, AStrangerWithManyAddressesTakesItsOwnPlaces) {
  GuestList guests(FEW);
  guests.enter(10, "job");
  for (const int fd : {20, 21, 22}) guests.enter(fd, "stranger");
  guests.enter(30, "stranger's other");
  EXPECT_EQ(guests.in_the_way_of("stranger's third"), 20) << "the oldest silent one of the fullest address";
  for (const int fd : {20, 21, 22, 30}) guests.spoke(fd);
  EXPECT_EQ(guests.in_the_way_of("stranger's third"), 10) << "the one that says nothing";
  guests.spoke(10);
  EXPECT_EQ(guests.in_the_way_of("stranger's third"), 20);
}

TEST(GuestList, WithoutDescriptorsSomebodyGoesIfThereIsSomebody) {
  GuestList guests(FEW);
  EXPECT_EQ(guests.first_to_go(), std::nullopt);
  guests.enter(10, "a");
  EXPECT_EQ(guests.first_to_go(), 10);
  guests.leave(10);
  EXPECT_EQ(guests.first_to_go(), std::nullopt);
}

}  // namespace
}  // namespace lockstep
