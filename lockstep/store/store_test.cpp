// One suite for every store: the contract of store.h, compared with a std::map that this file interprets.
#include "lockstep/store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/os/child_process.h"
#include "lockstep/store/file_store.h"
#include "lockstep/store/memory_store.h"
#include "lockstep/store/prefix_store.h"
#include "lockstep/store/tcp_store.h"
#include "lockstep/store/tcp_store_server.h"
#include "testing/temp_folder.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// Gives out handles of one store, like different threads and processes would have them.
class Shop {
 public:
  virtual ~Shop() = default;
  virtual std::shared_ptr<Store> open() = 0;
};

class MemoryShop : public Shop {
 public:
  std::shared_ptr<Store> open() override { return store_; }

 private:
  std::shared_ptr<Store> store_ = std::make_shared<MemoryStore>();
};

class FileShop : public Shop {
 public:
  std::shared_ptr<Store> open() override { return std::make_shared<FileStore>(folder_ / "store"); }

 private:
  testing::TempFolder folder_;
};

class TcpShop : public Shop {
 public:
  std::shared_ptr<Store> open() override {
    const TcpAddress at = server_.address();
    return std::make_shared<TcpStore>(TcpStoreOptions{.host = at.host, .port = at.port, .secret = secret_});
  }

 private:
  const Secret secret_ = Secret::random();
  TcpStoreServer server_{{.secret = secret_, .address = "127.0.0.1"}};
};

class OwnServerShop : public Shop {
 public:
  std::shared_ptr<Store> open() override { return server_.open(); }

 private:
  TcpStoreServer server_{{.secret = Secret::random(), .address = "127.0.0.1"}};
};

template <typename Base> class PrefixShop : public Shop {
 public:
  std::shared_ptr<Store> open() override { return std::make_shared<PrefixStore>(base_.open(), "part/of"); }

 private:
  Base base_;
};

struct Kind {
  std::string name;
  std::unique_ptr<Shop> (*make)();
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }
template <typename T> std::unique_ptr<Shop> make() { return std::make_unique<T>(); }

class Stores : public ::testing::TestWithParam<Kind> {
 protected:
  const std::unique_ptr<Shop> shop_ = GetParam().make();
  const std::shared_ptr<Store> store_ = shop_->open();
};

INSTANTIATE_TEST_SUITE_P(, Stores,
                         ::testing::Values(Kind{"Memory", make<MemoryShop>}, Kind{"File", make<FileShop>},
                                           Kind{"Tcp", make<TcpShop>}, Kind{"OwnServer", make<OwnServerShop>},
                                           Kind{"PrefixMemory", make<PrefixShop<MemoryShop>>},
                                           Kind{"PrefixTcp", make<PrefixShop<TcpShop>>}),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(Stores, RandomCallsGiveWhatAMapGives) {
  std::map<std::string, std::string> model;
  std::mt19937 random(20261121);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto other = shop_->open();  // a change through one handle is visible through another
  for (int step = 0; step < 1500; ++step) {
    Store& store = pick(2) == 0 ? *store_ : *other;
    const std::string key = std::string("k\0\n\xff", 4) + std::to_string(pick(6));
    const std::string value = pick(4) == 0 ? "" : std::to_string(pick(5));
    SCOPED_TRACE(step);
    switch (pick(7)) {
      case 0:
      case 1:
        store.set(key, value);
        model[key] = value;
        break;
      case 2: {
        const auto at = model.find(key);
        ASSERT_EQ(store.find(key), at == model.end() ? std::nullopt : std::optional(at->second));
        break;
      }
      case 3: {
        const long amount = pick(2000) - 1000;
        const long sum = (model[key].empty() ? 0 : std::stol(model[key])) + amount;
        ASSERT_EQ(store.add(key, amount), sum);
        model[key] = std::to_string(sum);
        break;
      }
      case 4: {
        const std::string expected = pick(3) == 0 ? "" : std::to_string(pick(5));
        const auto at = model.find(key);
        const bool sets = at == model.end() ? expected.empty() : at->second == expected;
        const std::string after = sets ? value : (at == model.end() ? expected : at->second);
        ASSERT_EQ(store.compare_set(key, expected, value), after);
        if (sets) model[key] = value;
        break;
      }
      case 5: ASSERT_EQ(store.delete_key(key), model.erase(key) == 1); break;
      case 6: ASSERT_EQ(store.num_keys(), model.size()); break;
      default: FAIL();
    }
  }
}

TEST_P(Stores, GetWaitsForAnotherHandle) {
  const auto other = shop_->open();
  std::thread later([&] {
    other->set("first", "1");
    other->set("key", "value");
  });
  EXPECT_EQ(store_->get("key", 20s), "value");
  store_->wait({"key", "first"}, 20s);
  later.join();
}

TEST_P(Stores, GetNamesTheKeyThatDidNotCome) {
  store_->set("there", "1");
  for (const auto timeout : {0ms, 30ms}) {
    try {
      store_->wait({"there", "mis\x1bsing"}, timeout);
      FAIL();
    } catch (const StoreError& error) {
      EXPECT_THAT(error.what(), HasSubstr("mis\\x1bsing"));
    }
  }
  EXPECT_EQ(store_->get("there", 0ms), "1");
}

TEST_P(Stores, AddAndCompareSetEndAWaitToo) {
  const auto other = shop_->open();
  std::thread later([&] {
    other->add("sum", 41);
    other->compare_set("compared", "", "x");
  });
  EXPECT_EQ(store_->get("sum", 20s), "41");
  EXPECT_EQ(store_->get("compared", 20s), "x");
  later.join();
}

TEST_P(Stores, FirstOfGivesTheFirstThatExists) {
  EXPECT_FALSE(store_->first_of({"a", "b"}, Deadline::in(0ms)));
  store_->set("b", "2");
  auto entry = store_->first_of({"a", "b"}, Deadline::in(20s));
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->index, 1U);
  EXPECT_EQ(entry->value, "2");
  store_->set("a", "1");
  EXPECT_EQ(store_->first_of({"a", "b"}, Deadline::never())->index, 0U);
}

TEST_P(Stores, AddToTextIsRefusedAndChangesNothing) {
  store_->set("key", "12x");
  EXPECT_THROW(store_->add("key", 1), StoreError);
  EXPECT_EQ(store_->get("key", 0ms), "12x");
  store_->set("key", "9223372036854775807");
  EXPECT_THROW(store_->add("key", 1), StoreError);
  EXPECT_EQ(store_->add("key", -1), 9223372036854775806);
}

TEST_P(Stores, ValuesOfUpToAMebibyteFit) {
  std::string largest(MAX_STORE_TEXT, 'x');
  largest[77] = '\0';
  store_->set("key", largest);
  EXPECT_EQ(store_->get("key", 0ms), largest);
  EXPECT_THROW(store_->set("key", largest + "y"), StoreError);
  EXPECT_THROW(store_->set(largest + "y", "value"), StoreError);
  EXPECT_THROW(store_->add(largest + "y", 1), StoreError);
  EXPECT_THROW(store_->compare_set("key", "", largest + "y"), StoreError);
  EXPECT_EQ(store_->num_keys(), 1U);
  store_->set("key", "still works");
  EXPECT_EQ(store_->get("key", 0ms), "still works");
}

TEST_P(Stores, ThreadsAddWithoutLosingAny) {
  constexpr int THREADS = 4;
  constexpr int EACH = 50;
  std::vector<std::thread> threads;
  for (int t = 0; t < THREADS; ++t) {
    threads.emplace_back([&, store = shop_->open()] {
      for (int i = 0; i < EACH; ++i) store->add("sum", 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->get("sum", 0ms), std::to_string(THREADS * EACH));
}

TEST_P(Stores, OneHandleServesSeveralThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) store_->add("sum", 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(store_->get("sum", 0ms), "200");
}

TEST_P(Stores, OfSeveralWhoCompareSetOneWins) {
  std::vector<std::string> saw(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t, store = shop_->open()] {
      saw[static_cast<std::size_t>(t)] = store->compare_set("leader", "", std::to_string(t));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(saw, ::testing::Each(store_->get("leader", 0ms)));
}

class StoresOfProcesses : public Stores {};
INSTANTIATE_TEST_SUITE_P(, StoresOfProcesses,
                         ::testing::Values(Kind{"File", make<FileShop>}, Kind{"Tcp", make<TcpShop>},
                                           Kind{"PrefixTcp", make<PrefixShop<TcpShop>>}),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(StoresOfProcesses, ProcessesAddWithoutLosingAny) {
  constexpr int PROCESSES = 4;
  constexpr int EACH = 50;
  std::vector<pid_t> children;
  for (int p = 0; p < PROCESSES; ++p) {
    children.push_back(fork_child([&] {
      const auto store = shop_->open();
      for (int i = 0; i < EACH; ++i) store->add("sum", 1);
      return store->get("go", 20s) == "now" ? 0 : 1;
    }));
  }
  store_->set("go", "now");
  for (const pid_t child : children) EXPECT_TRUE(wait_exit(child).success());
  EXPECT_EQ(store_->get("sum", 0ms), std::to_string(PROCESSES * EACH));
}

TEST(PrefixStore, KeysOfTwoPrefixesDoNotMeet) {
  const auto base = std::make_shared<MemoryStore>();
  PrefixStore a(base, "a");
  PrefixStore b(base, "b");
  a.set("key", "1");
  EXPECT_FALSE(b.find("key"));
  EXPECT_EQ(base->get("a/key", 0ms), "1");
  EXPECT_TRUE(a.delete_key("key"));
  EXPECT_EQ(base->num_keys(), 0U);
}

TEST(FileStore, ARecordThatIsCutOffIsForgotten) {
  const testing::TempFolder folder;
  FileStore(folder / "store").set("key", "value");
  const std::string whole = folder.read("store");
  for (std::size_t cut = 1; cut < whole.size(); ++cut) {
    folder.write("store", whole + whole.substr(0, cut));
    FileStore store(folder / "store");
    EXPECT_EQ(store.num_keys(), 1U);
    store.set("next", "1");
    EXPECT_EQ(FileStore(folder / "store").get("next", 0ms), "1");
  }
}

TEST(FileStore, AnotherFileIsRefusedByName) {
  const testing::TempFolder folder;
  FileStore store(folder.write("notes.txt", "Dear diary, today I trained a model."));
  try {
    store.find("key");
    FAIL();
  } catch (const StoreError& error) {
    EXPECT_THAT(error.what(), HasSubstr("notes.txt"));
  }
}

}  // namespace
}  // namespace lockstep
