// What a TLS connection costs beside one over plain TCP in the same run. The load is one thread
// with one connection at a time.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "support/daemon.h"
#include "support/raw_tls_client.h"
#include "tests/bench/measure.h"
#include "tests/bench/table.h"
#include "tests/support/tls_files.h"

namespace syncd::bench {
namespace {

using test::Daemon;
using test::RawClient;
using test::RawTlsClient;
using test::TempDir;

constexpr const char* kAbout =
    "Connections over TLS 1.3 with certificates on both sides, in ratios to plain TCP.";

struct Options {
  int rounds = 7;        // of each side, interleaved
  double seconds = 0.5;  // that a round measures
  bool no_pin = false;
};

enum class Kind { kPlain, kFull, kResumed };

struct Side {
  Kind kind;
  pid_t daemon;
  std::string address;
  std::shared_ptr<tls::Context> tls;
  std::vector<double> rate = {}, cpu_us = {}, p50_us = {};

  // Connections of one `peer` resume each other's sessions.
  void connect(const std::string& peer, bool must_resume = false) const {
    if (kind == Kind::kPlain) {
      RawClient(address).hello();
      return;
    }
    RawTlsClient client(address, tls, peer);
    client.hello();
    if (must_resume && !client.resumed()) fail("sessions are not resumed");
  }

  void round(double seconds, bool counts) {
    static std::size_t serial = 0;
    std::vector<double> latencies_us;
    const std::int64_t cpu_before = process_cpu_ns(daemon);
    const std::int64_t start = now_ns();
    const std::int64_t stop = start + static_cast<std::int64_t>(seconds * 1e9);
    std::int64_t last = start;
    while (last < stop) {
      connect(kind == Kind::kFull ? std::to_string(++serial) : "one");
      const std::int64_t now = now_ns();
      latencies_us.push_back(static_cast<double>(now - last) / 1e3);
      last = now;
    }
    const auto done = static_cast<double>(latencies_us.size());
    if (counts) {
      rate.push_back(done / (static_cast<double>(last - start) / 1e9));
      cpu_us.push_back(static_cast<double>(process_cpu_ns(daemon) - cpu_before) / 1e3 / done);
      p50_us.push_back(percentile(latencies_us, 0.5));
    }
    if (kind == Kind::kResumed) connect("one", true);
  }
};

std::vector<std::string> row(const std::string& what, const Side& side) {
  return {what, number(median(side.rate), 0), number(median(side.cpu_us), 2),
          number(median(side.p50_us))};
}
std::vector<std::string> ratio(const Side& tls, const Side& plain) {
  return {"  TLS / TCP", paired_ratio(tls.rate, plain.rate), paired_ratio(tls.cpu_us, plain.cpu_us),
          paired_ratio(tls.p50_us, plain.p50_us)};
}

void measure(const Options& options, Table& table) {
  const TempDir directory;
  const test::TlsFiles files(directory.path());
  files.make_server();
  files.make_client("worker", {"worker"});
  const auto tls =
      RawTlsClient::context({files.ca(), files.certificate("worker"), files.key("worker")});
  if (!options.no_pin) run_on(Processors::kOfServers);
  const std::vector<std::string> flags = {"--log-level", "warn"};
  const Daemon with_tls(directory,
                        {.name = "tls",
                         .store = "memory",
                         .tcp = "127.0.0.1:0",
                         .config = "[tls]\ncertificate = \"" + files.certificate("server") +
                                   "\"\nkey = \"" + files.key("server") + "\"\nclient_ca = \"" +
                                   files.ca() + "\"\n[limits]\nhandshakes_per_machine_per_s = 0\n",
                         .flags = flags});
  const Daemon without(directory,
                       {.name = "tcp", .store = "memory", .tcp = "127.0.0.1:0", .flags = flags});
  if (!options.no_pin) run_on(Processors::kOfLoad);

  Side plain{Kind::kPlain, without.pid(), without.tcp_address(), nullptr};
  Side full{Kind::kFull, with_tls.pid(), with_tls.tcp_address(), tls};
  Side resumed{Kind::kResumed, with_tls.pid(), with_tls.tcp_address(), tls};
  for (int i = -1; i < options.rounds; ++i) {  // the first warms up
    for (Side* side : {&plain, &full, &resumed}) side->round(options.seconds, i >= 0);
  }
  table.add(row("TCP", plain));
  table.add(row("TLS, full", full));
  table.add(ratio(full, plain));
  table.add(row("TLS, resumed", resumed));
  table.add(ratio(resumed, plain));
}

}  // namespace
}  // namespace syncd::bench

int main(int argc, char** argv) {
  using namespace syncd::bench;
  Options options;
  CLI::App app{kAbout};
  app.option_defaults()->always_capture_default();
  app.add_option("--rounds", options.rounds, "rounds of each side, interleaved")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", options.seconds, "what one round measures")
      ->check(CLI::Range(0.01, 60.0));
  app.add_flag("--no-pin", options.no_pin,
               "let load and daemons run on any processor, instead of the load on the first and "
               "the daemons on the others");
  CLI11_PARSE(app, argc, argv);
  std::printf("machine: %s\n", machine_line().c_str());
  std::printf("TLS 1.3, EC P-256 certificates on both sides; %d rounds of %g s each, medians\n\n",
              options.rounds, options.seconds);
  Table table({"connections", "per s", "daemon's CPU us", "p50 us"});
  measure(options, table);
  table.print();
}
