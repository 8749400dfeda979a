// What etcd alone allows: fenced appends a second, as a shard's leader makes them, of a given size,
// by so many leaders at once. The floor beside tests/cluster/measure.py's pushes.
#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <thread>
#include <vector>

#include "daemon/core/cluster/format.h"
#include "daemon/edge/cluster/etcd.h"

namespace {

using namespace syncd::cluster;  // NOLINT(google-build-using-namespace)
using Clock = std::chrono::steady_clock;

constexpr syncd::Micros kTimeout = 5'000'000;

struct Options {
  std::vector<std::string> etcd;
  std::size_t bytes = 1000;
  double seconds = 5;
  Shard shards = 1;
};

// How many it made, or -1.
long append(const Options& options, Shard shard, Clock::time_point end) {
  std::string error;
  EtcdOptions etcd_options;
  etcd_options.endpoints = options.etcd;
  const auto etcd = open_etcd(etcd_options, error);
  if (etcd == nullptr) {
    std::cerr << "bench_appends: " << error << '\n';
    return -1;
  }
  const ShardKeys keys("bench-appends", shard);
  std::string tail = "0";
  long appended = 0;
  etcd->transact({{}, {{Op::Kind::kDelete, keys.leader()}}, {}}, 0, kTimeout);
  Answer answer = etcd->transact(
      {{}, {{Op::Kind::kPut, keys.leader(), "a"}, {Op::Kind::kPut, keys.tail(), tail}}, {}}, 0,
      kTimeout);
  const Revision leader = answer.revision;
  const std::string records(options.bytes, 'r');
  while (answer.kind == Answer::Kind::kThen && Clock::now() < end) {
    const std::string next = std::to_string(appended + 1);
    Transaction entry;
    entry.compares = {{keys.leader(), leader}, {keys.tail(), 0, tail}};
    entry.then = {{Op::Kind::kPut, keys.entry(static_cast<Index>(appended) + 1), records},
                  {Op::Kind::kPut, keys.tail(), next}};
    answer = etcd->transact(entry, 0, kTimeout);
    tail = next;
    ++appended;
  }
  if (answer.kind == Answer::Kind::kThen) return appended;
  std::cerr << "bench_appends: " << answer.error << '\n';
  return -1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Fenced appends a second to a running etcd");
  app.add_option("--etcd", options.etcd, "etcd's endpoints")->required();
  app.add_option("--bytes", options.bytes, "of an entry's records")->capture_default_str();
  app.add_option("--seconds", options.seconds)->capture_default_str();
  app.add_option("--shards", options.shards, "logs that are appended to at once")
      ->check(CLI::Range(1U, syncd::kShardsMax))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const auto end =
      Clock::now() + std::chrono::microseconds(static_cast<long>(options.seconds * 1e6));
  std::vector<long> made(options.shards);
  std::vector<std::thread> threads;
  for (Shard shard = 0; shard < options.shards; ++shard) {
    threads.emplace_back([&, shard] { made[shard] = append(options, shard, end); });
  }
  for (std::thread& thread : threads) thread.join();
  long all = 0;
  for (const long of_shard : made) {
    if (of_shard < 0) return 1;
    all += of_shard;
  }
  std::cout << static_cast<double>(all) / options.seconds << '\n';
  return 0;
}
