// Endpoints that are dead, silent or cut off: what is said of a call, and how soon.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "etcd_program.h"

namespace syncd::test {
namespace {

using cluster::Answer;
using cluster::Etcd;
using cluster::EtcdOptions;
using cluster::LeaseId;

// How long a call took, less what it was given. Bounds are wide, for busy machines.
constexpr Milliseconds kLate{30'000};

class Watch {
 public:
  Milliseconds passed() const {
    return std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - begin_);
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

TEST(EtcdSilence, ATransactionWithoutAnAnswerMayHappenLater) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  // Whether etcd still takes a request whose caller has gone is its own race: both happen.
  bool landed = false;
  for (int round = 0; round < 100 && !landed; ++round) {
    const std::string key = "late/" + std::to_string(round);
    ASSERT_TRUE(happened(etcd->transact(just({get(key)}), 0, kTimeout)));
    servers.stop();
    const Watch watch;
    const Answer answer = etcd->transact(when({{.key = key}}, {put(key, "1")}), 0, kSeconds / 10);
    const Milliseconds passed = watch.passed();
    servers.go_on();
    ASSERT_TRUE(is(Answer::Kind::kUnknown, answer, "did not answer in time"));
    ASSERT_TRUE(is(Answer::Kind::kUnknown, answer, servers.endpoint()));
    EXPECT_LT(passed, kLate);
    landed = appears(*etcd, key, Milliseconds(200));
  }
  EXPECT_TRUE(landed);
}

TEST(EtcdSilence, EveryCallEndsWhileEtcdIsStopped) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  cluster::Etcd::Status status;
  std::string error;
  ASSERT_TRUE(etcd->status(status, kTimeout, error)) << error;
  servers.stop();
  const Watch watch;
  EXPECT_TRUE(is(Answer::Kind::kUnknown, etcd->transact(just({get("a")}), 0, kSeconds),
                 "did not answer in time"));
  EXPECT_FALSE(etcd->grant(1, kSeconds, kSeconds).known);
  EXPECT_FALSE(etcd->keep_alive(1, kSeconds).known);
  EXPECT_FALSE(etcd->revoke(1, kSeconds, error));
  EXPECT_NE(error.find(servers.endpoint()), std::string::npos) << error;
  EXPECT_FALSE(etcd->status(status, kSeconds, error));
  EXPECT_TRUE(
      is(Answer::Kind::kUnknown, etcd->transact(just({get("a")}), 0, 0), "no time was left"));
  EXPECT_LT(watch.passed(), Milliseconds(5'000) + kLate);
  // A client that meets it like this has no connection yet.
  const auto second = open_client(servers.options());
  EXPECT_TRUE(is(Answer::Kind::kUnknown, second->transact(just({put("a", "1")}), 0, kSeconds),
                 "did not answer in time"));
  servers.go_on();
  EXPECT_TRUE(happened(second->transact(just({get("a")}), 0, kTimeout)));
}

TEST(EtcdSilence, EndpointsThatCannotBeReachedAreLeftBeforeAnythingIsSent) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  FreePorts ports(2);
  ports.listen(1);  // the first one refuses connections
  EtcdOptions options = servers.options();
  options.endpoints = {"http://127.0.0.1:" + std::to_string(ports.at(0)),
                       "http://127.0.0.1:" + std::to_string(ports.at(1)), servers.endpoint()};
  options.silence = kSeconds / 2;
  // Each call by a client that begins at the first one. The last one may be late, too.
  std::string error;
  LeaseId lease = 0;
  wait_until("a transaction", [&] {
    return open_client(options)->transact(just({put("a", "1")}), 0, kTimeout).kind ==
           Answer::Kind::kThen;
  });
  wait_until("a grant",
             [&] { return open_client(options)->grant(++lease, 60 * kSeconds, kTimeout).known; });
  wait_until("a keep-alive",
             [&] { return open_client(options)->keep_alive(lease, kTimeout).ttl > 0; });
  wait_until("a revoke", [&] { return open_client(options)->revoke(lease, kTimeout, error); });

  // Where none answers, each is named with its cause.
  options.endpoints.pop_back();
  const Answer answer = open_client(options)->transact(just({put("b", "1")}), 0, kTimeout);
  EXPECT_TRUE(is(Answer::Kind::kUnknown, answer, options.endpoints[0]));
  EXPECT_TRUE(is(Answer::Kind::kUnknown, answer, "refused"));
  EXPECT_TRUE(is(Answer::Kind::kUnknown, answer, options.endpoints[1] + " did not answer in time"));
}

TEST(EtcdSilence, NoProxyIsAsked) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  FreePorts ports(1);
  const std::string proxy = "http://127.0.0.1:" + std::to_string(ports.at(0));
  const std::vector<const char*> variables{"http_proxy", "https_proxy", "grpc_proxy", "no_proxy"};
  for (const char* variable : variables) setenv(variable, proxy.c_str(), 1);
  const Answer answer = open_client(servers.options())->transact(just({get("a")}), 0, kTimeout);
  for (const char* variable : variables) unsetenv(variable);
  EXPECT_TRUE(happened(answer));
}

TEST(EtcdSilence, ARestartIsMetByTheNextCall) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  ASSERT_TRUE(happened(etcd->transact(just({put("a", "1")}), 0, kTimeout)));
  servers.process().kill();
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(is(Answer::Kind::kUnknown, etcd->transact(just({put("a", "2")}), 0, kTimeout),
                   servers.endpoint()));
  }
  servers.start_again();
  const Answer answer = etcd->transact(just({get("a"), put("a", "3")}), 0, kTimeout);
  EXPECT_TRUE(happened(answer));
  EXPECT_EQ(text(answer), "a=1") << "nothing of what could not be sent happened";
}

TEST(EtcdSilence, NothingIsSentTwiceToAnEtcdThatIsKilled) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers;
  const auto etcd = open_client(servers.options());
  const auto read = [&] { return etcd->transact(just({get("k/", "k0")}), 0, kTimeout); };
  const Answer before = read();
  ASSERT_TRUE(happened(before));
  // Each key is put by one transaction without compares, so that a second one would be seen as a
  // revision without a key.
  std::atomic<int> happened_count = 0;
  std::set<std::string> must_be_there;
  std::jthread writer([&, client = open_client(servers.options())](const std::stop_token& stop) {
    for (int i = 0; !stop.stop_requested(); ++i) {
      const std::string key = "k/" + std::to_string(i);
      if (client->transact(just({put(key, "1")}), 0, kTimeout).kind == Answer::Kind::kThen) {
        must_be_there.insert(key);
        ++happened_count;
      }
    }
  });
  for (int kill = 0; kill < 5; ++kill) {
    const int enough = happened_count + 20;
    wait_until("some transactions", [&] { return happened_count >= enough; });
    servers.process().kill();
    servers.start_again();
  }
  writer.request_stop();
  writer.join();
  const Answer after = read();
  ASSERT_TRUE(happened(after));
  EXPECT_EQ(static_cast<std::int64_t>(after.got.size()), after.revision - before.revision);
  for (const std::string& key : must_be_there) EXPECT_NE(after.find(key), nullptr) << key;
}

// A client that is connected to the first of three members, with lease 5. On a busy machine they
// may elect another leader at any time, or answer late, whereupon a client goes to the next.
std::unique_ptr<Etcd> client_of_first(const EtcdOptions& options) {
  std::unique_ptr<Etcd> etcd;
  std::string error;
  wait_until("the first member", [&] {
    etcd = open_client(options);
    return etcd->revoke(5, kTimeout, error) && etcd->grant(5, 60 * kSeconds, kTimeout).known &&
           etcd->transact(just({put("a", "1")}), 0, kTimeout).kind == Answer::Kind::kThen &&
           etcd->keep_alive(5, kTimeout).ttl > 0;
  });
  return etcd;
}

TEST(EtcdSilence, AMemberThatIsStoppedIsLeft) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers({.members = 3});
  EtcdOptions options = servers.options();
  options.silence = 3 * kSeconds;
  const auto etcd = client_of_first(options);

  servers.stop(0);
  // What may have been sent is not sent again, but the next one goes elsewhere.
  const Answer first = etcd->transact(just({put("a", "2")}), 0, kTimeout);
  EXPECT_TRUE(is(Answer::Kind::kUnknown, first, servers.endpoint(0)));
  // The others elect a leader first, if it was this one.
  wait_until("the other members to take a transaction", [&] {
    return etcd->transact(just({put("a", "3")}), 0, kTimeout).kind == Answer::Kind::kThen;
  });
  wait_until("a keep-alive", [&] { return etcd->keep_alive(5, kTimeout).ttl == 60 * kSeconds; });

  // A read tries each member once. A new client begins at the one that is stopped.
  wait_until("a read", [&] {
    return text(open_client(options)->transact(just({get("a")}), 0, kTimeout)) == "a=3";
  });
  servers.go_on(0);
}

TEST(EtcdSilence, AKeepAliveIsSentOnceAndTheNextGoesElsewhere) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers({.members = 3});
  EtcdOptions options = servers.options();
  options.silence = 3 * kSeconds;
  const auto etcd = client_of_first(options);
  servers.stop(0);
  const auto silent = etcd->keep_alive(5, kTimeout);
  EXPECT_FALSE(silent.known);
  EXPECT_NE(silent.error.find(servers.endpoint(0)), std::string::npos) << silent.error;
  EXPECT_EQ(silent.error.find(servers.endpoint(1)), std::string::npos) << silent.error;
  wait_until("the other members to keep the lease alive",
             [&] { return etcd->keep_alive(5, kTimeout).ttl > 0; });
}

TEST(EtcdSilence, AMemberWithoutALeaderSaysSoAtOnce) {
  SYNCD_NEEDS_ETCD();
  EtcdServers servers({.members = 3});
  EtcdOptions options = servers.options();
  options.endpoints = {servers.endpoint(0)};
  const auto etcd = open_client(options);
  servers.stop(1);
  servers.stop(2);
  Answer answer;
  wait_until("the member to miss its leader", [&] {
    answer = etcd->transact(just({put("a", "2")}), 0, kSeconds);
    EXPECT_EQ(answer.kind, Answer::Kind::kUnknown);
    return answer.error.find("etcdserver: no leader (UNAVAILABLE)") != std::string::npos;
  });
  // Not that it did not answer in time, which etcd by itself says after 7 s.
  EXPECT_TRUE(is(Answer::Kind::kUnknown, etcd->transact(just({put("a", "3")}), 0, kTimeout),
                 "etcdserver: no leader (UNAVAILABLE)"));
  servers.go_on(1);
  servers.go_on(2);
  wait_until("a leader", [&] {
    return etcd->transact(just({put("a", "4")}), 0, kTimeout).kind == Answer::Kind::kThen;
  });
}

}  // namespace
}  // namespace syncd::test
