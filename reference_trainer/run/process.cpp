// Child processes: see process.h. Runs on the parent's main thread; between fork and exec only
// async-signal-safe calls are made.
#include "reference_trainer/run/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "reference_trainer/run/clock.h"

extern "C" char** environ;

namespace syncd::trainer {
namespace {

constexpr std::int64_t kPollUs = 2'000;

volatile std::sig_atomic_t first_signal = 0;
volatile std::sig_atomic_t signals = 0;

// On whatever thread the signal interrupts.
void note(int number) {
  if (first_signal == 0) first_signal = number;
  signals = signals + 1;
}

bool is_unset(std::string_view entry, const std::vector<std::string>& unset) {
  const std::string_view name = entry.substr(0, entry.find('='));
  for (const std::string& pattern : unset) {
    const bool prefix = pattern.ends_with('*');
    const std::string_view stem = std::string_view(pattern).substr(0, pattern.size() - prefix);
    if (prefix ? name.starts_with(stem) : name == stem) return true;
  }
  return false;
}

// Everything that exec needs, made before the fork.
struct ExecImage {
  std::vector<char*> arguments;
  std::vector<char*> environment;

  explicit ExecImage(const SpawnOptions& options) {
    arguments.push_back(const_cast<char*>(options.program.c_str()));
    for (const std::string& argument : options.arguments) {
      arguments.push_back(const_cast<char*>(argument.c_str()));
    }
    arguments.push_back(nullptr);
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (!is_unset(*entry, options.unset)) environment.push_back(*entry);
    }
    environment.push_back(nullptr);
  }
};

// Runs in the child. Writes errno to report_fd if it does not get as far as the new program.
[[noreturn]] void become(const SpawnOptions& options, const ExecImage& image, pid_t parent,
                         int report_fd) {
  // The parent's handlers are gone after exec, but what is blocked or ignored would be inherited.
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const auto interrupt = options.ignore_interrupt ? SIG_IGN : SIG_DFL;
  ::signal(SIGINT, interrupt);
  ::signal(SIGHUP, interrupt);
  ::signal(SIGPIPE, SIG_DFL);
  if (options.own_group) ::setpgid(0, 0);
  if (options.death_signal != 0) {
    ::prctl(PR_SET_PDEATHSIG, options.death_signal);
    if (::getppid() != parent) ::_exit(127);  // it died before the line above
  }
  const int null_fd = ::open("/dev/null", O_RDONLY);
  if (null_fd >= 0) ::dup2(null_fd, STDIN_FILENO);
  if (options.output_fd >= 0) {
    ::dup2(options.output_fd, STDOUT_FILENO);
    ::dup2(options.output_fd, STDERR_FILENO);
  }
  for (const int fd : options.inherited_fds) ::fcntl(fd, F_SETFD, 0);
  ::execve(options.program.c_str(), image.arguments.data(), image.environment.data());
  const int reason = errno;
  const ssize_t written = ::write(report_fd, &reason, sizeof(reason));
  ::_exit(written == sizeof(reason) ? 127 : 126);
}

}  // namespace

ChildProcess ChildProcess::start(const SpawnOptions& options) {
  const ExecImage image(options);
  int report[2];
  if (::pipe2(report, O_CLOEXEC) != 0) {
    throw ProcessError(fmt::format("{}: pipe: {}", options.program, std::strerror(errno)));
  }
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) become(options, image, parent, report[1]);
  const int fork_errno = errno;
  ::close(report[1]);
  if (pid < 0) {
    ::close(report[0]);
    throw ProcessError(fmt::format("{}: fork: {}", options.program, std::strerror(fork_errno)));
  }
  ChildProcess child(pid);
  int reason = 0;
  ssize_t got = 0;
  do {
    got = ::read(report[0], &reason, sizeof(reason));
  } while (got < 0 && errno == EINTR);
  ::close(report[0]);
  if (got == sizeof(reason)) {
    throw ProcessError(
        fmt::format("{}: cannot be run: {}", options.program, std::strerror(reason)));
  }
  return child;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), status_(std::exchange(other.status_, std::nullopt)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(status_, other.status_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || poll()) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::optional<int> ChildProcess::poll() {
  int status = 0;
  if (!status_ && pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_;
}

std::optional<int> ChildProcess::wait(std::int64_t timeout_ms) {
  SystemClock clock;
  const std::int64_t deadline_us = clock.now_us() + timeout_ms * 1'000;
  while (!poll() && clock.now_us() < deadline_us) clock.sleep_us(kPollUs);
  return status_;
}

void ChildProcess::signal(int number) {
  if (pid_ > 0 && !poll()) ::kill(pid_, number);
}

std::string describe_exit(int status) {
  if (WIFEXITED(status)) return fmt::format("exit status {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) {
    const char* name = ::sigabbrev_np(WTERMSIG(status));
    return name != nullptr ? fmt::format("killed by SIG{}", name)
                           : fmt::format("killed by signal {}", WTERMSIG(status));
  }
  return fmt::format("wait status {:#x}", status);
}

std::filesystem::path own_program() {
  std::error_code error;
  std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw ProcessError("/proc/self/exe cannot be read: " + error.message());
  return path;
}

TemporaryDirectory::TemporaryDirectory() {
  const char* base = std::getenv("TMPDIR");
  std::string name =
      fmt::format("{}/syncd-trainer-XXXXXX", base != nullptr && *base != '\0' ? base : "/tmp");
  if (::mkdtemp(name.data()) == nullptr) {
    throw ProcessError(fmt::format("no temporary directory {}: {}", name, std::strerror(errno)));
  }
  path_ = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void watch_interrupts() {
  struct sigaction action {};
  action.sa_handler = note;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(number, &action, nullptr);
  // A reader of our output that goes away must not keep us from stopping what we started.
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &ignore, nullptr);
}

void watch_termination() {
  struct sigaction action {};
  action.sa_handler = note;
  ::sigaction(SIGTERM, &action, nullptr);
}

int interrupt_signal() {
  return first_signal;
}
int interrupt_count() {
  return signals;
}

}  // namespace syncd::trainer
