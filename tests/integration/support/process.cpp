// See process.h.
#include "support/process.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ostream>
#include <stdexcept>
#include <string_view>

#include "support/files.h"

extern char** environ;

namespace syncd::test {
namespace {

bool is_ours(std::string_view variable) {
  for (const std::string_view prefix :
       {"SYNCD_", "RANK=", "WORLD_SIZE=", "SLURM_", "OMPI_", "XDG_",
        "STATE_DIRECTORY=", "RUNTIME_DIRECTORY=", "NOTIFY_SOCKET=", "LISTEN_"}) {
    if (variable.starts_with(prefix)) return true;
  }
  return false;
}

constexpr std::string_view kListenPid = "LISTEN_PID=";
constexpr int kFirstSocket = 3;      // SD_LISTEN_FDS_START
constexpr int kOutOfTheWay = 1'000;  // above what the sockets get

std::vector<std::string> child_environment(const Command& command) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    bool replaced = is_ours(variable);
    for (const auto& [name, value] : command.environment) {
      replaced = replaced || variable.starts_with(name + "=");
    }
    if (!replaced) out.emplace_back(variable);
  }
  for (const auto& [name, value] : command.environment) out.push_back(name + "=" + value);
  if (!command.sockets.empty()) {
    out.push_back("LISTEN_FDS=" + std::to_string(command.sockets.size()));
    out.push_back("LISTEN_FDNAMES=" + command.socket_names);
    out.push_back(std::string(kListenPid) + "0000000000");  // the child's, which it writes itself
  }
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& string : strings) out.push_back(string.data());
  out.push_back(nullptr);
  return out;
}

// What the child needs, laid out before fork(): between fork and exec only system calls are
// allowed.
struct Prepared {
  std::vector<char*> argv;
  std::vector<char*> environment;
  const char* directory;
  const char* out;
  const char* err;
  int executable;  // opened while we still may: the user may not search the directories above it
  const std::vector<int>& sockets;
  char* listen_pid;  // the digits of that variable
  bool as_lone_user;
  pid_t parent;
};

constexpr uid_t kNobody = 65534;

// A network of this process's own has a loopback interface that is down.
void raise_loopback() {
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  ifreq request{};
  std::memcpy(request.ifr_name, "lo", sizeof "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  ioctl(fd, SIOCSIFFLAGS, &request);
  close(fd);
}

bool become_lone_user() {
  const bool is_root = geteuid() == 0;
  if (unshare(is_root ? CLONE_NEWNET : CLONE_NEWUSER | CLONE_NEWNET) == 0) raise_loopback();
  return !is_root || (setgid(kNobody) == 0 && setuid(kNobody) == 0);
}

// To 3 and on, where the sockets may lie in each other's way.
bool place_sockets(const Prepared& prepared) {
  const int count = static_cast<int>(prepared.sockets.size());
  for (int i = 0; i < count; ++i) {
    if (dup2(prepared.sockets[static_cast<std::size_t>(i)], kOutOfTheWay + i) < 0) return false;
  }
  for (int i = 0; i < count; ++i) {
    if (dup2(kOutOfTheWay + i, kFirstSocket + i) < 0) return false;
    close(kOutOfTheWay + i);
  }
  pid_t pid = getpid();
  for (int digit = 9; count > 0 && digit >= 0; --digit, pid /= 10) {
    prepared.listen_pid[digit] = static_cast<char>('0' + pid % 10);
  }
  return true;
}

[[noreturn]] void run_child(const Prepared& prepared) {
  const auto give_up = [](const char* what) {
    (void)!write(STDERR_FILENO, what, std::strlen(what));
    _exit(126);
  };
  signal(SIGPIPE, SIG_DFL);
  const int in = open("/dev/null", O_RDONLY);
  const int out = open(prepared.out, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  if (in < 0 || out < 0 || dup2(in, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0) {
    give_up("cannot open the child's output\n");
  }
  int err = out;
  if (prepared.err[0] != '\0') {
    err = open(prepared.err, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
  }
  if (err < 0 || dup2(err, STDERR_FILENO) < 0) give_up("cannot open the child's error output\n");
  if (prepared.directory[0] != '\0' && chdir(prepared.directory) != 0) give_up("chdir failed\n");
  if (prepared.as_lone_user && !become_lone_user()) give_up("cannot become another user\n");
  // Last, because a change of the user takes it back.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != prepared.parent) _exit(126);
  if (!place_sockets(prepared)) give_up("cannot place the sockets\n");
  fexecve(prepared.executable, prepared.argv.data(), prepared.environment.data());
  give_up("cannot execute the program\n");
  _exit(126);
}

Ending ending_of(int status) {
  return WIFEXITED(status) ? exited(WEXITSTATUS(status)) : killed_by(WTERMSIG(status));
}

}  // namespace

std::string program(const std::string& name) {
  return std::string(SYNCD_TEST_BIN_DIR) + "/" + name;
}

std::string to_string(const Ending& ending) {
  if (ending.signal != 0) return std::string("killed by ") + strsignal(ending.signal);
  return "exit code " + std::to_string(ending.code);
}

void PrintTo(const Ending& ending, std::ostream* out) {
  *out << to_string(ending);
}

Process::Process(const Command& command) : name_(command.argv.at(0)) {
  std::vector<std::string> argv = command.argv;
  std::vector<std::string> environment = child_environment(command);
  const std::string out = command.stdout_path.empty() ? "/dev/null" : command.stdout_path;
  const int opened = open(argv[0].c_str(), O_RDONLY | O_CLOEXEC);
  if (opened < 0) throw std::runtime_error("cannot open " + name_ + ": " + strerror(errno));
  // Not where a socket belongs.
  const int executable = fcntl(opened, F_DUPFD_CLOEXEC, kFirstSocket + 100);
  close(opened);
  const Prepared prepared{pointers(argv),
                          pointers(environment),
                          command.directory.c_str(),
                          out.c_str(),
                          command.stderr_path.c_str(),
                          executable,
                          command.sockets,
                          environment.back().data() + kListenPid.size(),
                          command.as_lone_user,
                          getpid()};
  pid_ = fork();
  if (pid_ == 0) run_child(prepared);
  close(executable);
  if (pid_ < 0) throw std::runtime_error("fork failed for " + name_);
}

Process::Process(Process&& other) noexcept
    : name_(std::move(other.name_)),
      pid_(std::exchange(other.pid_, -1)),
      ending_(std::exchange(other.ending_, std::nullopt)) {}

Process& Process::operator=(Process&& other) noexcept {
  if (this == &other) return *this;
  kill();
  name_ = std::move(other.name_);
  pid_ = std::exchange(other.pid_, -1);
  ending_ = std::exchange(other.ending_, std::nullopt);
  return *this;
}

bool Process::running() {
  if (pid_ < 0 || ending_) return false;
  int status = 0;
  const pid_t gone = waitpid(pid_, &status, WNOHANG);
  if (gone == pid_) ending_ = ending_of(status);
  return !ending_;
}

void Process::signal(int number) {
  if (running()) ::kill(pid_, number);
}

void Process::kill() {
  if (!running()) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  ending_ = ending_of(status);
}

Ending Process::wait(Milliseconds timeout) {
  if (pid_ < 0) throw std::logic_error("there is no process to wait for");
  try {
    wait_until(
        name_ + " to end", [this] { return !running(); }, timeout);
  } catch (...) {
    kill();
    throw;
  }
  return *ending_;
}

testing::AssertionResult ended(const RunResult& result, int code, const std::string& part) {
  if (result.ending == exited(code) && result.err.find(part) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << to_string(result.ending) << " instead of exit code " << code
                                     << " with '" << part << "'; it said:\n"
                                     << result.out << result.err;
}

RunResult run(const std::vector<std::string>& argv, const std::string& scratch,
              const std::vector<std::pair<std::string, std::string>>& environment,
              Milliseconds timeout) {
  static std::atomic<int> number{0};
  const std::string prefix = scratch + "/run-" + std::to_string(++number);
  Command command;
  command.argv = argv;
  command.environment = environment;
  command.stdout_path = prefix + ".out";
  command.stderr_path = prefix + ".err";
  Process process(command);
  RunResult result;
  result.ending = process.wait(timeout);
  result.out = read_file(command.stdout_path);
  result.err = read_file(command.stderr_path);
  return result;
}

}  // namespace syncd::test
