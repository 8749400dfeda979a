// What TLS costs: connections a second and messages, beside plain TCP in the same run. The load is
// one thread with one connection at a time.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "proto/tls.h"
#include "tests/bench/measure.h"
#include "tests/bench/options.h"
#include "tests/bench/servers.h"
#include "tests/bench/table.h"
#include "tests/bench/workers.h"
#include "tests/support/tls_files.h"

namespace syncd::bench {
namespace {

constexpr const char* kAbout =
    "Connections and messages over TLS 1.3 with certificates on both sides, in ratios to plain "
    "TCP.";

// One connection, blocking.
class Line {
 public:
  // `tls`: null for none. Connections of one `peer` resume each other's sessions.
  Line(const Endpoint& endpoint, const std::shared_ptr<tls::Context>& tls, const std::string& peer)
      : fd_(connect_to(endpoint)) {
    if (fd_ < 0) fail("nobody listens on " + endpoint.text());
    if (tls == nullptr) return;
    std::vector<std::uint8_t> first;
    channel_ = tls::Channel::connect(tls, "127.0.0.1", peer, first);
    put(first);
  }
  ~Line() { close(fd_); }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  const wire::Message& ask(const wire::Message& message) {
    std::vector<std::uint8_t> frame;
    encoder_.append(message, frame);
    if (channel_ == nullptr) {
      put(frame);
    } else {
      std::vector<std::uint8_t> sealed;
      if (!channel_->send(frame, sealed)) fail(channel_->error());
      put(sealed);
    }
    return receive();
  }
  void hello() {
    const wire::Hello hello{kProtocolMin, kProtocolMax, "bench_tls", "1", ""};
    if (!std::holds_alternative<wire::Welcome>(ask({1, hello}).body)) fail("no welcome");
  }
  bool resumed() const { return channel_ != nullptr && channel_->resumed(); }

 private:
  void put(const std::vector<std::uint8_t>& bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = ::send(fd_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (n > 0) done += static_cast<std::size_t>(n);
      if (n < 0 && errno != EAGAIN && errno != EINTR) fail(std::strerror(errno));
    }
  }
  const wire::Message& receive() {
    for (;;) {
      std::span<const std::uint8_t> payload;
      std::string error;
      if (frames_.next(payload, error) == wire::FrameSplitter::Result::kFrame) {
        if (!wire::decode(payload, message_, error)) fail(error);
        return message_;
      }
      pollfd wanted{fd_, POLLIN, 0};
      if (::poll(&wanted, 1, 20'000) <= 0) fail("the daemon does not answer");
      std::uint8_t buffer[16384];
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) fail("the daemon closed a connection");
      const std::span bytes(buffer, static_cast<std::size_t>(n));
      if (channel_ == nullptr) {
        frames_.append(bytes);
        continue;
      }
      std::vector<std::uint8_t> plain;
      std::vector<std::uint8_t> out;
      if (!channel_->receive(bytes, plain, out)) fail(channel_->error());
      frames_.append(plain);
      put(out);
    }
  }

  int fd_;
  std::unique_ptr<tls::Channel> channel_;
  wire::Encoder encoder_;
  wire::FrameSplitter frames_;
  wire::Message message_;
};

enum class Kind { kPlain, kFull, kResumed };

struct Side {
  const char* name;
  Kind kind;
  pid_t daemon;
  Endpoint endpoint;
  std::shared_ptr<tls::Context> tls;
  std::vector<double> rate = {}, cpu_us = {}, p50_us = {};

  void note(std::size_t count, std::int64_t elapsed_ns, std::int64_t cpu_ns,
            std::vector<double>& latencies_us, bool counts) {
    if (!counts) return;
    const auto done = static_cast<double>(count);
    rate.push_back(done / (static_cast<double>(elapsed_ns) / 1e9));
    cpu_us.push_back(static_cast<double>(cpu_ns) / 1e3 / done);
    p50_us.push_back(percentile(latencies_us, 0.5));
  }
};

template <typename Once>
void repeat(Side& side, double seconds, bool counts, Once&& once) {
  std::vector<double> latencies_us;
  const std::int64_t cpu_before = process_cpu_ns(side.daemon);
  const std::int64_t start = now_ns();
  const std::int64_t stop = start + static_cast<std::int64_t>(seconds * 1e9);
  std::int64_t last = start;
  while (last < stop) {
    once();
    const std::int64_t now = now_ns();
    latencies_us.push_back(static_cast<double>(now - last) / 1e3);
    last = now;
  }
  side.note(latencies_us.size(), last - start, process_cpu_ns(side.daemon) - cpu_before,
            latencies_us, counts);
}

void connections(Side& side, double seconds, bool counts) {
  static std::size_t serial = 0;
  repeat(side, seconds, counts, [&] {
    const std::string peer = side.kind == Kind::kFull ? std::to_string(++serial) : "one";
    Line line(side.endpoint, side.tls, peer);
    line.hello();
  });
  if (side.kind != Kind::kResumed) return;
  Line line(side.endpoint, side.tls, "one");
  line.hello();
  if (!line.resumed()) fail("sessions are not resumed");
}

// Of one worker, which is the whole of its job.
struct Training {
  Line line;
  Worker worker;

  explicit Training(const Side& side) : line(side.endpoint, side.tls, "training") {
    line.hello();
    wire::Join join;
    join.job = "bench";
    join.policy = "asp";
    join.name = "worker";
    join.host = "here";
    join.rank = 0;
    join.world_size = 1;
    const auto* joined = std::get_if<wire::Joined>(&line.ask({2, join}).body);
    if (joined == nullptr) fail("the join was refused");
    worker.ref = joined->worker;
  }
  void once(bool begins) {
    if (begins) {
      check_answer(line.ask(begin_message(worker, 0, worker.iteration)), worker.iteration);
    } else {
      check_answer(line.ask(push_message(worker, 0, worker.iteration)), worker.iteration);
      ++worker.iteration;
    }
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
  const TempDir directory(options.directory);
  const TempDir plain_directory(options.directory);
  const test::TlsFiles files(directory.path());
  files.make_server();
  files.make_client("worker", {"worker"});
  std::string error;
  const auto tls =
      tls::Context::client({files.ca(), files.certificate("worker"), files.key("worker")}, error);
  if (tls == nullptr) fail(error);
  const std::string config = "[tls]\ncertificate = \"" + files.certificate("server") +
                             "\"\nkey = \"" + files.key("server") + "\"\nclient_ca = \"" +
                             files.ca() + "\"\n[limits]\nhandshakes_per_machine_per_s = 0\n";
  const Endpoint sealed = fresh_endpoint("tcp", directory.path(), "tls");
  const Child with_tls =
      start_syncd(options, {sealed, "memory", {}, config}, directory.path(), Placement::kApart);
  const Endpoint open = fresh_endpoint("tcp", plain_directory.path(), "tcp");
  const Child without =
      start_syncd(options, {open, "memory"}, plain_directory.path(), Placement::kApart);

  Side plain{"TCP", Kind::kPlain, without.pid(), open, nullptr};
  Side full{"TLS, full", Kind::kFull, with_tls.pid(), sealed, tls};
  Side resumed{"TLS, resumed", Kind::kResumed, with_tls.pid(), sealed, tls};
  for (int i = -1; i < options.rounds; ++i) {  // the first warms up
    for (Side* side : {&plain, &full, &resumed}) connections(*side, options.seconds, i >= 0);
  }
  table.add(row("connections: TCP", plain));
  table.add(row("connections: TLS, full", full));
  table.add(ratio(full, plain));
  table.add(row("connections: TLS, resumed", resumed));
  table.add(ratio(resumed, plain));

  Side messages_plain{"TCP", Kind::kPlain, without.pid(), open, nullptr};
  Side messages_tls{"TLS", Kind::kFull, with_tls.pid(), sealed, tls};
  Training over_plain(messages_plain);
  Training over_tls(messages_tls);
  for (int i = -1; i < options.rounds; ++i) {
    for (auto [side, training] :
         {std::pair{&messages_plain, &over_plain}, std::pair{&messages_tls, &over_tls}}) {
      repeat(*side, options.seconds, i >= 0, [&, training = training] {
        training->once(true);
        training->once(false);
      });
    }
  }
  table.add(row("iterations (begin, push): TCP", messages_plain));
  table.add(row("iterations (begin, push): TLS", messages_tls));
  table.add(ratio(messages_tls, messages_plain));
}

int run(int argc, char** argv) {
  Options defaults;
  const Options options = parse_options(argc, argv, kAbout, "", defaults);
  pin_this_thread();
  std::printf("machine: %s\n", machine_line().c_str());
  std::printf(
      "TLS 1.3, EC P-256 certificates on both sides; store: memory; %d rounds of %g s each, "
      "medians%s\n\n",
      options.rounds, options.seconds, options.pin ? "; load and server on processors apart" : "");
  Table table({"", "per s", "daemon's CPU us", "p50 us"});
  measure(options, table);
  table.print();
  return 0;
}

}  // namespace
}  // namespace syncd::bench

int main(int argc, char** argv) {
  return syncd::bench::run(argc, argv);
}
