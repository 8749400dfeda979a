// Starting, pinning and ending of child processes. One thread.
#include "tests/bench/process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "tests/bench/measure.h"

namespace syncd::bench {
namespace {

constexpr int kLoadProcessor = 0;
bool pinning = true;

bool can_pin() {
  return pinning && std::thread::hardware_concurrency() > 1;
}

cpu_set_t all_but_load_processor() {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) CPU_SET(i, &set);
  return set;
}

cpu_set_t every_processor() {
  cpu_set_t set = all_but_load_processor();
  CPU_SET(kLoadProcessor, &set);
  return set;
}

// Between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(char* const* argv, int log, const cpu_set_t& processors) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sched_setaffinity(0, sizeof processors, &processors);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

void disable_pinning() {
  pinning = false;
}

void pin_this_thread() {
  if (!can_pin()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(kLoadProcessor, &set);
  sched_setaffinity(0, sizeof set, &set);
}

Child::Child(const std::vector<std::string>& argv, const std::string& log_path, Placement placement)
    : name_(argv.front()), log_path_(log_path) {
  std::vector<char*> raw;
  for (const std::string& word : argv) raw.push_back(const_cast<char*>(word.c_str()));
  raw.push_back(nullptr);
  const int log = open(log_path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) fail(log_path + ": " + std::strerror(errno));
  const bool apart = placement == Placement::kApart && can_pin();
  const cpu_set_t processors = apart ? all_but_load_processor() : every_processor();
  pid_ = fork();
  if (pid_ < 0) fail(name_ + " cannot be started: " + std::strerror(errno));
  if (pid_ == 0) become(raw.data(), log, processors);
  close(log);
}

Child::Child(Child&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      name_(std::move(other.name_)),
      log_path_(std::move(other.log_path_)) {}

Child& Child::operator=(Child&& other) noexcept {
  if (this != &other) {
    kill();
    pid_ = std::exchange(other.pid_, -1);
    name_ = std::move(other.name_);
    log_path_ = std::move(other.log_path_);
  }
  return *this;
}

void Child::check_alive() const {
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == 0) return;
  std::ifstream log(log_path_);
  const std::string text{std::istreambuf_iterator<char>(log), std::istreambuf_iterator<char>()};
  fail(name_ + " has ended; it said:\n" + text);
}

void Child::stop() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGTERM);
  const std::int64_t deadline = now_ns() + 10'000'000'000;
  while (now_ns() < deadline) {
    if (waitpid(pid_, nullptr, WNOHANG) != 0) {
      pid_ = -1;
      return;
    }
    usleep(2'000);
  }
  kill();
}

void Child::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

TempDir::TempDir(const std::string& parent) {
  path_ = parent + "/syncd-bench-XXXXXX";
  if (mkdtemp(path_.data()) == nullptr) fail(parent + ": " + std::strerror(errno));
  set_log_directory(path_);
}

TempDir::~TempDir() {
  set_log_directory({});
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string own_executable() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) fail("/proc/self/exe: " + error.message());
  return path.string();
}

std::uint16_t free_tcp_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (fd < 0 || bind(fd, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail(std::string("no free TCP port: ") + std::strerror(errno));
  }
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace syncd::bench
