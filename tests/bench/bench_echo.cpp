// Request and reply: begin and push against a running syncd, beside a bare libuv echo of the same
// frames. Prints what a message costs the server, how many go through, and how long one takes. The
// load is one thread.
#include <cstdio>

#include "tests/bench/client.h"
#include "tests/bench/measure.h"
#include "tests/bench/options.h"
#include "tests/bench/request_reply.h"
#include "tests/bench/servers.h"
#include "tests/bench/table.h"
#include "tests/bench/workers.h"

namespace syncd::bench {
namespace {

constexpr const char* kAbout =
    "Begin and push through syncd (policy asp), in ratios to a bare libuv echo of the same frames.";

// One server with its load, and what the rounds so far have found.
struct Side {
  Child server;
  Client client;
  std::unique_ptr<RequestReply> load;
  std::vector<double> messages_per_s, cpu_us, begin_p50, begin_p99, push_p50, push_p99;

  void round(double seconds, bool counts) {
    RequestReplyRound r = load->run(server.pid(), seconds);
    if (!counts) return;
    messages_per_s.push_back(r.messages_per_s);
    cpu_us.push_back(r.cpu_us_per_message);
    begin_p50.push_back(percentile(r.begin_us, 0.5));
    begin_p99.push_back(percentile(r.begin_us, 0.99));
    push_p50.push_back(percentile(r.push_us, 0.5));
    push_p99.push_back(percentile(r.push_us, 0.99));
  }
};

std::vector<std::string> row(const std::string& name, const Side& side) {
  return {name,
          number(median(side.cpu_us), 2),
          number(median(side.messages_per_s), 0),
          number(median(side.begin_p50)),
          number(median(side.begin_p99)),
          number(median(side.push_p50)),
          number(median(side.push_p99))};
}

std::vector<std::string> ratio_row(const Side& syncd, const Side& floor) {
  return {"  syncd / floor",
          paired_ratio(syncd.cpu_us, floor.cpu_us),
          paired_ratio(syncd.messages_per_s, floor.messages_per_s),
          paired_ratio(syncd.begin_p50, floor.begin_p50),
          paired_ratio(syncd.begin_p99, floor.begin_p99),
          paired_ratio(syncd.push_p50, floor.push_p50),
          paired_ratio(syncd.push_p99, floor.push_p99)};
}

void measure(const Options& options, const std::string& transport, std::size_t connections,
             Table& table) {
  const TempDir directory(options.directory);
  Side floor;
  const Endpoint echo = fresh_endpoint(transport, directory.path(), "echo");
  floor.server = start_floor({echo, 0, 0}, directory.path(), Placement::kApart);
  floor.load = std::make_unique<RequestReply>(
      floor.client, connect_to_floor(floor.client, echo, connections, connections));

  Side syncd;
  const Endpoint real = fresh_endpoint(transport, directory.path(), "syncd");
  syncd.server = start_syncd(options, {real, options.store, directory.path() + "/store"},
                             directory.path(), Placement::kApart);
  syncd.load = std::make_unique<RequestReply>(
      syncd.client, connect_to_syncd(syncd.client, real, "echo", "asp", connections, connections));

  for (int i = -1; i < options.rounds; ++i) {  // the first warms up
    Side* first = i % 2 == 0 ? &floor : &syncd;
    Side* second = i % 2 == 0 ? &syncd : &floor;
    first->round(options.seconds, i >= 0);
    second->round(options.seconds, i >= 0);
  }
  const std::string label = transport + ", " + std::to_string(connections);
  table.add(row(label + ": libuv echo", floor));
  table.add(row(label + ": syncd", syncd));
  table.add(ratio_row(syncd, floor));
}

int run(int argc, char** argv) {
  Options defaults;
  defaults.sizes = {1, 64, 1000};
  const Options options = parse_options(argc, argv, kAbout, "connections", defaults);
  pin_this_thread();
  std::printf("machine: %s\n", machine_line().c_str());
  std::printf("begin: %zu bytes, push: %zu bytes; store: %s; %d rounds of %g s each, medians%s\n\n",
              frame_bytes(begin_message(Worker{}, 0, 1000)),
              frame_bytes(push_message(Worker{}, 0, 1000)), options.store.c_str(), options.rounds,
              options.seconds, options.pin ? "; load and server on processors apart" : "");
  Table table({"transport, connections", "CPU us/msg", "messages/s", "begin p50 us", "p99",
               "push p50 us", "p99"});
  for (const std::string& transport : options.transports) {
    for (const int connections : options.sizes) {
      measure(options, transport, static_cast<std::size_t>(connections), table);
    }
  }
  table.print();
  return 0;
}

}  // namespace
}  // namespace syncd::bench

int main(int argc, char** argv) {
  syncd::bench::FloorOptions floor;
  if (syncd::bench::parse_floor_command(argc, argv, floor)) syncd::bench::run_floor_server(floor);
  return syncd::bench::run(argc, argv);
}
