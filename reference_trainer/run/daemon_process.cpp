// The trainer's own daemon: see daemon_process.h. Runs on the parent's main thread.
#include "reference_trainer/run/daemon_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

#include "proto/base/file.h"
#include "reference_trainer/data/data_file.h"
#include "reference_trainer/run/clock.h"

namespace syncd::trainer {
namespace {

constexpr std::int64_t kStartTimeoutMs = 30'000;  // a large store takes a while to replay
constexpr std::int64_t kStopTimeoutMs = 15'000;
constexpr std::size_t kLogLinesShown = 12;

bool accepts(const std::string& path) {
  const UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return fd &&
         ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

std::string last_lines(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  const std::size_t first = lines.size() > kLogLinesShown ? lines.size() - kLogLinesShown : 0;
  std::string text;
  for (std::size_t i = first; i < lines.size(); ++i) text += "\n  " + lines[i];
  return text.empty() ? " (it printed nothing)" : "; it said:" + text;
}

bool is_program(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::filesystem::path find_syncd() {
  std::filesystem::path beside = own_program().parent_path() / "syncd";
  if (is_program(beside)) return beside;
  const char* path = std::getenv("PATH");
  std::vector<std::string_view> folders;
  split_fields(path != nullptr ? path : "", ':', folders);
  for (const std::string_view folder : folders) {
    if (folder.empty()) continue;
    std::filesystem::path candidate = std::filesystem::path(folder) / "syncd";
    if (is_program(candidate)) return candidate;
  }
  throw ProcessError(
      fmt::format("no syncd to start: it is neither {} nor in PATH; install it, or name a running "
                  "one with --daemon",
                  beside.string()));
}

DaemonProcess::DaemonProcess(const DaemonOptions& options) {
  const std::filesystem::path socket = directory_.path() / "syncd.sock";
  if (socket.native().size() >= sizeof(sockaddr_un::sun_path)) {
    throw ProcessError(fmt::format(
        "{} is too long for a Unix socket ({} bytes at most): set TMPDIR to a shorter directory",
        socket.string(), sizeof(sockaddr_un::sun_path) - 1));
  }
  const std::filesystem::path log = directory_.path() / "syncd.log";
  const UniqueFd log_fd(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log_fd) throw ProcessError(fmt::format("{}: {}", log.string(), std::strerror(errno)));
  SpawnOptions spawn;
  spawn.program = find_syncd().string();
  spawn.arguments = {"--store", options.store, "--unix",      socket.string(),
                     "--tcp",   "off",         "--log-level", options.verbose ? "info" : "warn"};
  // A daemon of our own takes its settings from us, not from what is set for another one.
  spawn.unset = {"SYNCD_*"};
  spawn.output_fd = log_fd.get();
  spawn.death_signal = SIGTERM;
  spawn.own_group = true;  // it is stopped after its workers have left, not by the same Ctrl-C
  process_ = ChildProcess::start(spawn);
  SystemClock clock;
  const std::int64_t deadline_us = clock.now_us() + kStartTimeoutMs * 1'000;
  while (!accepts(socket.native())) {
    if (const auto status = process_->poll()) throw ProcessError(describe_end(*status));
    if (clock.now_us() > deadline_us) {
      throw ProcessError(fmt::format("syncd does not accept connections on {} after {} s{}",
                                     socket.string(), kStartTimeoutMs / 1'000, last_lines(log)));
    }
    clock.sleep_us(5'000);
  }
}

std::string DaemonProcess::address() const {
  return fmt::format("unix:{}", (directory_.path() / "syncd.sock").string());
}

std::string DaemonProcess::describe_end(int status) const {
  return fmt::format("syncd ended by itself ({}){}", describe_exit(status),
                     last_lines(directory_.path() / "syncd.log"));
}

std::optional<std::string> DaemonProcess::failure() {
  const auto status = process_->poll();
  if (!status) return std::nullopt;
  return describe_end(*status);
}

std::optional<std::string> DaemonProcess::stop() {
  if (auto text = failure()) return text;
  process_->signal(SIGTERM);
  const auto status = process_->wait(kStopTimeoutMs);
  if (!status) {
    return fmt::format("syncd did not stop within {} s of SIGTERM and is killed{}",
                       kStopTimeoutMs / 1'000, last_lines(directory_.path() / "syncd.log"));
  }
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return std::nullopt;
  return fmt::format("syncd did not stop in good order ({}){}", describe_exit(*status),
                     last_lines(directory_.path() / "syncd.log"));
}

}  // namespace syncd::trainer
