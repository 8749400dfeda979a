// What etcd does for the client: transactions, leases, reads page by page.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "etcd_program.h"

namespace syncd::test {
namespace {

using cluster::Answer;
using cluster::Compare;
using cluster::Etcd;
using cluster::LeaseId;
using cluster::Op;
using cluster::Revision;
using cluster::Transaction;

TEST(Etcd, PutsWhatComparesAllowAndGetsElse) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());

  const Answer created =
      etcd->transact(when({{.key = "a"}}, {put("a", "1"), put("b", "2")}), 0, kTimeout);
  ASSERT_TRUE(happened(created));
  EXPECT_GT(created.revision, 0);

  // A create revision stays when a key is put again.
  ASSERT_TRUE(happened(etcd->transact(
      when({{.key = "a", .revision = created.revision}}, {put("a", "3")}), 0, kTimeout)));
  const Answer got = etcd->transact(just({get("b"), get("nothing"), get("a")}), 0, kTimeout);
  ASSERT_TRUE(happened(got));
  EXPECT_EQ(text(got), "b=2 a=3") << "in the order of the gets";
  EXPECT_EQ(got.find("a")->created, created.revision);
  EXPECT_EQ(got.revision, created.revision + 1);

  const Answer by_value = etcd->transact(
      when({{.key = "b", .value = "2"}}, {get("b"), put("b", "4"), get("b")}), 0, kTimeout);
  ASSERT_TRUE(happened(by_value));
  EXPECT_EQ(text(by_value), "b=2 b=4") << "a get sees the puts before it";

  const Answer otherwise = etcd->transact(
      when({{.key = "a", .revision = created.revision}, {.key = "b", .value = "2"}},
           {put("a", "5")},
           {get("b"), get(std::string(1, '\0'), std::string(1, '\0')), remove("a", "c")}),
      0, kTimeout);
  EXPECT_TRUE(is(Answer::Kind::kElse, otherwise, ""));
  EXPECT_EQ(text(otherwise), "b=4 a=3 b=4");
  EXPECT_EQ(text(etcd->transact(just({get("a", "z")}), 0, kTimeout)), "");

  const Answer bytes =
      etcd->transact(just({put(std::string("k\0\xff", 3), std::string("v\0\xfe", 3)),
                           get(std::string("k\0\xff", 3))}),
                     0, kTimeout);
  ASSERT_TRUE(happened(bytes));
  EXPECT_EQ(bytes.got.at(0).value, std::string("v\0\xfe", 3));
}

TEST(Etcd, NamesItsVersionAndWhatItUses) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  cluster::Etcd::Status before;
  std::string error;
  ASSERT_TRUE(etcd->status(before, kTimeout, error)) << error;
  EXPECT_EQ(before.version.substr(0, 2), "3.");
  const std::string mebibyte(1 << 20, 'x');
  EXPECT_LT(before.used_bytes, mebibyte.size());
  ASSERT_TRUE(happened(etcd->transact(just({put("a", mebibyte)}), 0, kTimeout)));
  // It counts what it has written, a tenth of a second later, and gives back pages of before.
  cluster::Etcd::Status now;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  do {
    ASSERT_TRUE(etcd->status(now, kTimeout, error)) << error;
  } while (now.used_bytes < mebibyte.size() && std::chrono::steady_clock::now() < end);
  EXPECT_GE(now.used_bytes, mebibyte.size());
}

TEST(EtcdLease, CountsInSecondsAndIsGrantedOnce) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  const auto granted = etcd->grant(7, 59'500'000, kTimeout);
  ASSERT_TRUE(granted.known) << granted.error;
  EXPECT_EQ(granted.ttl, 60 * kSeconds) << "rounded up to seconds";
  const auto kept = etcd->keep_alive(7, kTimeout);
  ASSERT_TRUE(kept.known) << kept.error;
  EXPECT_EQ(kept.ttl, 60 * kSeconds);
  const auto again = etcd->grant(7, 60 * kSeconds, kTimeout);
  EXPECT_FALSE(again.known);
  EXPECT_NE(again.error.find("lease already exists"), std::string::npos) << again.error;
}

TEST(EtcdLease, KeysGoWithIt) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  // On a busy machine one may run out before it is used.
  LeaseId lease = 0;
  wait_until("a lease to be used in time", [&] {
    return etcd->grant(++lease, kSeconds, kTimeout).known &&
           etcd->transact(just({put_on_lease("leader", "me"), put("other", "x")}), lease, kTimeout)
                   .kind == Answer::Kind::kThen;
  });
  wait_until("the lease to run out", [&] {
    return text(etcd->transact(just({get("leader"), get("other")}), 0, kTimeout)) == "other=x";
  });
  const auto gone = etcd->keep_alive(lease, kTimeout);
  EXPECT_TRUE(gone.known) << gone.error;
  EXPECT_EQ(gone.ttl, 0);
}

TEST(EtcdLease, KeepAlivesHoldItLongerThanItsTime) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  // On a busy machine they may come too late.
  bool held = false;
  for (LeaseId lease = 1; lease <= 10 && !held; ++lease) {
    const Deadline end(Milliseconds(3'500));
    held = etcd->grant(lease, 2 * kSeconds, kTimeout).known &&
           etcd->transact(just({put_on_lease("leader", "me")}), lease, kTimeout).kind ==
               Answer::Kind::kThen;
    while (held && !end.passed()) {
      held = etcd->keep_alive(lease, kTimeout).ttl > 0;
      std::this_thread::sleep_for(Milliseconds(50));
    }
    held = held && text(etcd->transact(just({get("leader")}), 0, kTimeout)) == "leader=me";
  }
  EXPECT_TRUE(held);
}

TEST(EtcdLease, MayBeRevokedTwice) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  ASSERT_TRUE(etcd->grant(9, 60 * kSeconds, kTimeout).known);
  ASSERT_TRUE(happened(etcd->transact(just({put_on_lease("leader", "me")}), 9, kTimeout)));
  std::string error;
  EXPECT_TRUE(etcd->revoke(9, kTimeout, error)) << error;
  EXPECT_EQ(text(etcd->transact(just({get("leader")}), 0, kTimeout)), "");
  EXPECT_TRUE(etcd->revoke(9, kTimeout, error)) << error;
}

TEST(EtcdLease, APutOnOneThatIsNotThereHasNoEffect) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  EXPECT_TRUE(is(Answer::Kind::kUnknown,
                 etcd->transact(just({put_on_lease("leader", "me")}), 10, kTimeout),
                 "lease not found (NOT_FOUND)"));
  EXPECT_EQ(text(etcd->transact(just({get("leader")}), 0, kTimeout)), "");
}

TEST(Etcd, RefusesWhatCanNeverHappen) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  EXPECT_TRUE(is(Answer::Kind::kRefused,
                 etcd->transact(just({put("a", "1"), put("a", "2")}), 0, kTimeout),
                 "duplicate key given in txn request (INVALID_ARGUMENT)"));
  Transaction many;
  for (int i = 0; i < 129; ++i) many.then.push_back(put("k" + std::to_string(i), ""));
  EXPECT_TRUE(is(Answer::Kind::kRefused, etcd->transact(many, 0, kTimeout),
                 "too many operations in txn request (INVALID_ARGUMENT)"));
  EXPECT_TRUE(is(Answer::Kind::kRefused,
                 etcd->transact(just({put("a", std::string(1'700'000, 'x'))}), 0, kTimeout),
                 "request is too large (INVALID_ARGUMENT)"));
  // That one the transport refuses, which is no word about transactions.
  EXPECT_TRUE(is(Answer::Kind::kUnknown,
                 etcd->transact(just({put("a", std::string(4'000'000, 'x'))}), 0, kTimeout),
                 "(RESOURCE_EXHAUSTED)"));
  EXPECT_EQ(text(etcd->transact(just({get("a")}), 0, kTimeout)), "");
  // A read may have more operations than one request.
  many = just({});
  for (int i = 0; i < 300; ++i) many.then.push_back(get("k" + std::to_string(i)));
  EXPECT_TRUE(happened(etcd->transact(many, 0, kTimeout)));
}

TEST(Etcd, AFullOneIsNoWordAboutTheTransaction) {
  SYNCD_NEEDS_ETCD();
  EtcdServers::Setup setup;
  setup.flags = {"--quota-backend-bytes", std::to_string(4 << 20)};
  EtcdServers servers(setup);
  const auto etcd = open_client(servers.options());
  ASSERT_TRUE(etcd->grant(5, 60 * kSeconds, kTimeout).known);
  Answer answer;
  int put_keys = 0;
  for (answer.kind = Answer::Kind::kThen; answer.kind == Answer::Kind::kThen && put_keys < 20;) {
    const std::string key = "k" + std::to_string(put_keys++);
    answer = etcd->transact(just({put(key, std::string(1 << 20, 'x'))}), 0, kTimeout);
  }
  EXPECT_TRUE(is(Answer::Kind::kUnknown, answer, "database space exceeded (RESOURCE_EXHAUSTED)"));
  EXPECT_EQ(etcd->keep_alive(5, kTimeout).ttl, 60 * kSeconds);
  // The one that met the limit may have happened nevertheless.
  const std::size_t got = etcd->transact(just({get("k", "l")}), 0, kTimeout).got.size();
  EXPECT_TRUE(got == static_cast<std::size_t>(put_keys) ||
              got + 1 == static_cast<std::size_t>(put_keys))
      << got;
  // Deletes still happen.
  EXPECT_TRUE(happened(etcd->transact(just({remove("k", "l")}), 0, kTimeout)));
  std::string error;
  EXPECT_TRUE(etcd->revoke(5, kTimeout, error)) << error;
}

TEST(Etcd, ServesSeveralThreadsAtOnce) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  ASSERT_TRUE(etcd->grant(5, 60 * kSeconds, kTimeout).known);
  constexpr int kThreads = 6;
  constexpr int kEach = 50;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, tail = "tail/" + std::to_string(t)] {
      std::string before;
      for (int i = 1; i <= kEach; ++i) {
        const std::string now = std::to_string(i);
        EXPECT_TRUE(happened(etcd->transact(
            when({{.key = tail, .value = before.empty() ? std::nullopt : std::optional(before)}},
                 {put(tail, now)}),
            0, kTimeout)));
        before = now;
        EXPECT_EQ(etcd->keep_alive(5, kTimeout).ttl, 60 * kSeconds);
      }
    });
  }
  threads.clear();
  const Answer answer = etcd->transact(just({get("tail/", "tail0")}), 0, kTimeout);
  ASSERT_EQ(answer.got.size(), static_cast<std::size_t>(kThreads));
  for (const cluster::KeyValue& item : answer.got) EXPECT_EQ(item.value, std::to_string(kEach));
}

// Keys that a writer puts in turn, one at each revision, so that the revision of a read says what
// every key must hold.
class Rewritten {
 public:
  Rewritten(const EtcdServers& servers, int keys, std::size_t bytes)
      : etcd_(open_client(servers.options())), keys_(keys), bytes_(bytes) {
    for (int i = 0; i < keys; ++i) base_ = must_put(i, 0);
    thread_ = std::thread([this] { write(); });
  }
  ~Rewritten() {
    stop_ = true;
    thread_.join();
  }
  Rewritten(const Rewritten&) = delete;
  Rewritten& operator=(const Rewritten&) = delete;

  std::int64_t written() const { return written_; }

  void expect_whole(const Answer& answer) const {
    ASSERT_TRUE(happened(answer));
    ASSERT_EQ(answer.got.size(), static_cast<std::size_t>(keys_));
    const std::int64_t puts = answer.revision - base_;
    ASSERT_GE(puts, 0);
    for (int i = 0; i < keys_; ++i) {
      const cluster::KeyValue& item = answer.got[static_cast<std::size_t>(i)];
      ASSERT_EQ(item.key, key(i)) << "ascending";
      // The latest number up to `puts` that is this key's.
      const std::int64_t number = puts <= i ? 0 : puts - (puts - 1 - i) % keys_;
      ASSERT_TRUE(item.value == value(number)) << item.key << " at revision " << answer.revision;
      ASSERT_GT(item.created, 0);
      ASSERT_LE(item.created, base_);
    }
  }

 private:
  std::string key(int i) const { return "log/" + std::to_string(100'000 + i); }
  std::string value(std::int64_t number) const {
    std::string text = std::to_string(number) + " ";
    if (text.size() < bytes_) text.resize(bytes_, 'x');
    return text;
  }
  Revision must_put(int i, std::int64_t number) {
    const Answer answer = etcd_->transact(just({put(key(i), value(number))}), 0, kTimeout);
    if (answer.kind != Answer::Kind::kThen) throw std::runtime_error(answer.error);
    return answer.revision;
  }
  // The put that makes revision base_ + n is of key (n - 1) mod keys_.
  void write() {
    for (std::int64_t number = 1; !stop_; ++number) {
      const int i = static_cast<int>((number - 1) % keys_);
      const Answer answer = etcd_->transact(just({put(key(i), value(number))}), 0, kTimeout);
      EXPECT_TRUE(happened(answer));
      EXPECT_EQ(answer.revision, base_ + number);
      written_ = number;
    }
  }

  std::unique_ptr<Etcd> etcd_;
  const int keys_;
  const std::size_t bytes_;
  Revision base_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<std::int64_t> written_ = 0;
  std::thread thread_;
};

void expect_reads_at_one_revision(int keys, std::size_t bytes, int reads) {
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  Rewritten log(servers, keys, bytes);
  for (int i = 0; i < reads; ++i) {
    const std::int64_t before = log.written();
    const Answer answer = etcd->transact(just({get("log/", "log0")}), 0, kTimeout);
    ASSERT_NO_FATAL_FAILURE(log.expect_whole(answer));
    // The writer goes on, so that every read is among its puts.
    wait_until("the writer", [&] { return log.written() > before; });
  }
}

TEST(EtcdRead, HasAThousandKeysAtOneRevision) {
  SYNCD_NEEDS_ETCD();
  expect_reads_at_one_revision(1'000, 20, 10);
}

TEST(EtcdRead, HasFortyMebibytesAtOneRevision) {
  SYNCD_NEEDS_ETCD();
  expect_reads_at_one_revision(40, 1 << 20, 3);
}

TEST(EtcdRead, OfARevisionThatWasCompactedIsUnknown) {
  SYNCD_NEEDS_ETCD();
  SYNCD_NEEDS_ETCDCTL();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  Rewritten log(servers, 2'000, 20'000);  // many pages
  std::atomic<bool> seen = false;
  std::jthread reader([&, client = open_client(servers.options())](const std::stop_token& stop) {
    while (!seen && !stop.stop_requested()) {
      const Answer answer = client->transact(just({get("log/", "log0")}), 0, kTimeout);
      if (answer.kind == Answer::Kind::kThen) {
        log.expect_whole(answer);
      } else {
        EXPECT_TRUE(is(Answer::Kind::kUnknown, answer, "compacted (OUT_OF_RANGE)"));
        seen = true;
      }
    }
  });
  const Deadline deadline;
  while (!seen && !deadline.passed()) {
    const std::int64_t before = log.written();
    wait_until("the writer", [&] { return log.written() > before; });
    const Answer now = etcd->transact(just({get("log/")}), 0, kTimeout);
    servers.etcdctl({"compaction", std::to_string(now.revision)});
  }
  reader.request_stop();
  reader.join();
  EXPECT_TRUE(seen);
}

TEST(EtcdRead, KeepsTheOrderOfItsOperations) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  Transaction all;
  for (int i = 0; i < 100; ++i) all.then.push_back(put("x/" + std::to_string(100 + i), "v"));
  ASSERT_TRUE(happened(etcd->transact(all, 0, kTimeout)));
  const Answer answer = etcd->transact(
      just({get("x/199"), get("x/", "x0"), get("x/100"), get("y", "z"), get("x/150", "x/153")}), 0,
      kTimeout);
  ASSERT_TRUE(happened(answer));
  ASSERT_EQ(answer.got.size(), 105U);
  EXPECT_EQ(answer.got[0].key, "x/199");
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(answer.got[1 + i].key, all.then[i].key);
  EXPECT_EQ(answer.got[101].key, "x/100");
  EXPECT_EQ(answer.got[102].key, "x/150");
  EXPECT_EQ(answer.got[104].key, "x/152");
}

}  // namespace
}  // namespace syncd::test
