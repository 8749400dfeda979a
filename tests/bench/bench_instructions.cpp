// How many instructions of its own syncd takes for a message, and how many system calls. Valgrind's
// callgrind counts the instructions, so that a figure does not depend on how busy the machine is.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/c_api.h"
#include "support/daemon.h"
#include "tests/bench/measure.h"
#include "tests/bench/table.h"
#include "tests/bench/wire_load.h"

namespace syncd::bench {
namespace {

using test::Daemon;
using test::Milliseconds;
using test::TempDir;

constexpr const char* kAbout =
    "User-space instructions that syncd executes for a message, and its system calls. A message is "
    "one request with its answer: a push is one, a begin is one.";
constexpr const char* kFooter =
    "Each connection has DEPTH workers. It sends a push and a begin of each in one write, and goes "
    "on when all are\nanswered. Under hop a worker's iteration is five messages: targets; push and "
    "collect; consumed and begin.\nThe count begins after start, joins and the first iterations, "
    "and is taken from all threads. The daemon has its\ndefault configuration, but for a "
    "heartbeat_timeout of 10 minutes, and a Unix socket. "
    "System calls are counted by strace in a second run, without valgrind.\n"
    "With --client it is the client library's figures, for a pair of syncd_push() and "
    "syncd_begin().\n"
    "Policies that look at the clock see a daemon that is some 50 times slower than it is.\n"
    "Exit codes: 0 done, 1 something failed or took more than --expect allows, 77 valgrind is not "
    "installed.";

constexpr int kSkipped = 77;
constexpr Milliseconds kToolPatience{300'000};

struct Case {
  std::string policy = "asp";
  std::size_t connections = 64;
  std::size_t depth = 16;
  bool is_durable = false;
};

struct Options {
  Case one;
  bool all = false;
  bool client = false;
  std::uint64_t messages = 40'000;  // that are counted, at least
  std::string directory = "/tmp";
  bool profile = false;
  std::string out;
  double expected = 0;
};

// The rows of the project's own table.
std::vector<Case> all_cases() {
  std::vector<Case> cases = {{}, {.depth = 1}};
  for (const char* policy :
       {"bsp", "ssp:3", "dssp:3-15", "elastic_bsp:15", "specsync:fixed,100,0.2+asp", "hop:ring"}) {
    cases.push_back({.policy = policy});
  }
  cases.push_back({.is_durable = true});
  return cases;
}

std::string text_of(const Case& c) {
  return c.policy + ", " + std::to_string(c.connections) + " x " + std::to_string(c.depth) + ", " +
         (c.is_durable ? "durable" : "memory");
}

bool is_installed(const std::string& tool) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((folder + "/" + tool).c_str(), X_OK) == 0) return true;
  }
  return false;
}

test::RunResult run_tool(std::vector<std::string> command, const TempDir& directory) {
  command.insert(command.begin(), "/usr/bin/env");
  const test::RunResult result = test::run(command, directory.path(), {}, kToolPatience);
  if (result.ending != test::exited(0)) fail(command[1] + " failed: " + result.out + result.err);
  return result;
}

test::DaemonOptions daemon_options(const Case& c) {
  test::DaemonOptions options;
  if (!c.is_durable) options.store = "memory";
  options.admin = "127.0.0.1:0";
  // Connections are silent while a tool starts.
  options.config = "[timeouts]\nheartbeat_timeout = \"10m\"\n";
  options.flags = {"--log-level", "info"};
  return options;
}

WireLoad start_load(const Case& c, const Daemon& daemon) {
  return WireLoad({.address = daemon.address(),
                   .connections = c.connections,
                   .depth = c.depth,
                   .policy = c.policy});
}

// Enough for every worker to have been through several iterations.
std::uint64_t warm_up_messages(const Case& c) {
  return 10 * c.connections * c.depth;
}

std::uint64_t total_of(const std::string& callgrind_file) {
  for (const std::string& line : test::lines_of(test::read_file(callgrind_file))) {
    if (line.starts_with("totals: ")) return std::stoull(line.substr(8));
  }
  fail(callgrind_file + ": no totals in it");
}

// A function that was called before the counters were set to 0 and runs on has no calls, which
// callgrind_annotate would take for costs of its caller's own.
void copy_profile(const std::string& from, const std::string& to) {
  constexpr std::string_view kNone = "calls=0 ";
  std::string text;
  for (std::string line : test::lines_of(test::read_file(from))) {
    if (line.starts_with(kNone)) line.replace(0, kNone.size(), "calls=1 ");
    text += line + "\n";
  }
  test::write_file(to, text);
}

void print_profile(const std::string& file, const TempDir& directory) {
  constexpr std::size_t kLines = 60;
  for (const char* inclusive : {"yes", "no"}) {
    const test::RunResult result =
        run_tool({"callgrind_annotate", "--auto=no", std::string("--inclusive=") + inclusive, file},
                 directory);
    std::printf("\n%s:\n", inclusive[0] == 'y' ? "with what they call" : "by themselves");
    std::size_t lines = 0;
    bool begun = false;
    for (const std::string& line : test::lines_of(result.out)) {
      begun = begun || line.find("file:function") != std::string::npos;
      const std::string shown = line.substr(0, line.find(" ["));  // without the program's name
      if (begun && lines++ < kLines) std::printf("%.150s\n", shown.c_str());
    }
  }
}

struct Counted {
  std::uint64_t messages = 0;
  double a_message = 0;
};

Counted count_instructions(const Options& options, const Case& c) {
  const TempDir directory(options.directory);
  const std::string file = directory.file("callgrind");
  test::DaemonOptions daemon_options = bench::daemon_options(c);
  daemon_options.under = {"/usr/bin/env", "valgrind", "--tool=callgrind",
                          "--callgrind-out-file=" + file};
  const Daemon daemon(directory, daemon_options);
  const std::string pid = "--pid=" + std::to_string(daemon.pid());
  WireLoad load = start_load(c, daemon);
  load.run(warm_up_messages(c));
  run_tool({"vgdb", pid, "zero"}, directory);
  const std::uint64_t messages = load.run(options.messages);
  run_tool({"vgdb", pid, "dump"}, directory);
  const std::string dump = file + ".1";
  if (options.profile) {
    const std::string copy = directory.file("profile");
    copy_profile(dump, copy);
    print_profile(copy, directory);
  }
  if (!options.out.empty()) copy_profile(dump, options.out);
  return {messages, static_cast<double>(total_of(dump)) / static_cast<double>(messages)};
}

// strace's closing line: "100.00 0.123456 7 8901 23 total", the fourth word the number of calls.
double calls_of(const std::string& summary) {
  for (const std::string& line : test::lines_of(summary)) {
    std::istringstream words(line);
    std::string share, seconds, each;
    double calls = 0;
    if (line.ends_with("total") && words >> share >> seconds >> each >> calls) return calls;
  }
  fail("strace counted nothing: " + summary);
}

double count_system_calls(const Options& options, const Case& c) {
  const TempDir directory(options.directory);
  const Daemon daemon(directory, daemon_options(c));
  WireLoad load = start_load(c, daemon);
  load.run(warm_up_messages(c));
  test::Command command;
  command.argv = {"/usr/bin/env", "strace",
                  "-f",           "-c",
                  "-o",           directory.file("calls"),
                  "-p",           std::to_string(daemon.pid())};
  command.stdout_path = directory.file("strace.out");
  test::Process strace(command);
  test::wait_until("strace to attach itself", [&] {
    const std::string said = test::read_file(command.stdout_path);
    if (!strace.running()) fail("strace failed: " + said);
    return said.find("attached") != std::string::npos;
  });
  const std::uint64_t messages = load.run(options.messages);
  strace.signal(SIGINT);
  strace.wait();
  return calls_of(test::read_file(directory.file("calls"))) / static_cast<double>(messages);
}

// ---- The client library ------------------------------------------------------------------------

constexpr const char* kTrain =
    "--train";  // ADDRESS PAIRS: this program as the client of another one

int train(const std::string& address, int pairs) {
  test::ApiClient client(address);
  const test::ApiWorker worker = client.join({.job = "client", .policy = "asp"});
  for (int i = 0; i < pairs; ++i) {
    syncd_step step = SYNCD_STEP_INIT;
    if (syncd_begin(worker.get(), SYNCD_WAIT_FOREVER, &step, nullptr) != SYNCD_OK ||
        syncd_push(worker.get(), step.iteration, nullptr, SYNCD_WAIT_FOREVER, nullptr, nullptr) != SYNCD_OK) {
      fail("iteration " + std::to_string(i) + " failed");
    }
  }
  return 0;
}

// What a pair takes, by the difference between a long run and a short one: both start and end.
template <typename Count>
double count_a_pair(const Options& options, std::vector<std::string> tool, const Count& count) {
  constexpr int kPairs = 1'000;
  const TempDir directory(options.directory);
  const Daemon daemon(directory, daemon_options(options.one));
  const std::string file = directory.file("counted");
  tool.back() += file;
  const auto run = [&](int pairs) {
    std::vector<std::string> command = tool;
    command.insert(command.end(), {std::filesystem::read_symlink("/proc/self/exe"), kTrain,
                                   daemon.address(), std::to_string(pairs)});
    run_tool(command, directory);
    return count(file);
  };
  const double before = run(kPairs);
  const double after = run(3 * kPairs);
  if (!options.out.empty() && tool[0] == "valgrind") copy_profile(file, options.out);
  return (after - before) / (2 * kPairs);
}

void print_client(const Options& options, bool has_strace) {
  const double instructions =
      count_a_pair(options, {"valgrind", "--tool=callgrind", "--callgrind-out-file="},
                   [](const std::string& file) { return static_cast<double>(total_of(file)); });
  const std::string calls = has_strace
                                ? number(count_a_pair(options, {"strace", "-f", "-c", "-o", ""},
                                                      [](const std::string& file) {
                                                        return calls_of(test::read_file(file));
                                                      }),
                                         3)
                                : "-";
  Table table({"client, one worker", "instructions/pair", "system calls/pair"});
  table.add({"syncd_push + syncd_begin", number(instructions, 0), calls});
  table.print();
}

Options parse(int argc, char** argv) {
  Options options;
  std::string store = "memory";
  CLI::App app{kAbout};
  app.footer(kFooter);
  app.option_defaults()->always_capture_default();
  app.add_option("--policy", options.one.policy, "such as bsp, ssp:3 or hop:ring");
  app.add_option("--connections", options.one.connections, "how many")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--depth", options.one.depth,
                 "workers of each connection, one pair of each at a time")
      ->check(CLI::Range(1, 1'000));
  app.add_option("--store", store, "memory, or durable: on the disk of --dir")
      ->check(CLI::IsMember({"memory", "durable"}));
  app.add_flag("--all", options.all, "every row of the table, one after the other");
  app.add_flag("--client", options.client, "the client library's, instead of the daemon's");
  app.add_option("--messages", options.messages, "how many are counted, at least")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{100'000'000}));
  app.add_option("--dir", options.directory, "where stores and sockets lie meanwhile")
      ->check(CLI::ExistingDirectory);
  app.add_flag("--profile", options.profile, "print the functions that take most of it");
  app.add_option("--out", options.out, "keep callgrind's file, of the last row, here");
  app.add_option("--expect", options.expected,
                 "fail if a message takes over 10 % more instructions than this; 0: never");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  options.one.is_durable = store == "durable";
  return options;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (!is_installed("valgrind") || !is_installed("vgdb")) {
    std::fprintf(stderr,
                 "instructions: valgrind is not installed, which counts them; the package is "
                 "'valgrind' (packaging/install_packages bench)\n");
    return kSkipped;
  }
  const bool has_strace = is_installed("strace");
  if (!has_strace) std::printf("system calls are not counted: strace is not installed\n");
  std::printf("machine: %s\n\n", machine_line().c_str());
  if (options.client) {
    print_client(options, has_strace);
    return 0;
  }
  Table table({"policy, connections x depth, store", "messages", "instructions/message",
               "system calls/message"});
  bool is_over = false;
  for (const Case& c : options.all ? all_cases() : std::vector<Case>{options.one}) {
    const Counted counted = count_instructions(options, c);
    const std::string calls = has_strace ? number(count_system_calls(options, c), 3) : "-";
    table.add({text_of(c), std::to_string(counted.messages), number(counted.a_message, 0), calls});
    // The table comes at the end, minutes later.
    if (options.all) std::fprintf(stderr, "%s: %.0f\n", text_of(c).c_str(), counted.a_message);
    is_over = is_over || (options.expected > 0 && counted.a_message > 1.1 * options.expected);
  }
  if (options.profile) std::printf("\n");
  table.print();
  if (!is_over) return 0;
  std::printf("\nmore than 10 %% over the %.0f that are expected\n", options.expected);
  return 1;
}

}  // namespace
}  // namespace syncd::bench

int main(int argc, char** argv) try {
  using namespace syncd::bench;
  if (argc == 4 && std::string_view(argv[1]) == kTrain) return train(argv[2], std::stoi(argv[3]));
  return syncd::bench::run(argc, argv);
} catch (const std::exception& error) {
  syncd::bench::fail(error.what());
}
