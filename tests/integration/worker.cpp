// The worker process of the integration tests: the four calls of <syncd/client.h> in a loop, and a
// journal of what they answered. One line of the journal is one write(2), made right after the call
// returned, so that it is there whatever happens to this process next:
//
//   joined RANK            granted ITERATION FLAGS STALENESS      holding ITERATION
//   pushed ITERATION FLAGS error CALL NAME MESSAGE                stopped      left
//
// Usage: integration_worker KEY=VALUE...; the keys are those of Settings. Exits with 0 when it has
// done its iterations and left, or the job was stopped, 1 on an error, 2 on wrong usage.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string>

#include "syncd/client.h"

namespace {

struct Settings {
  std::string address;
  std::string job = "default";
  std::string policy;
  std::string journal;
  std::int64_t rank = SYNCD_RANK_ANY;
  std::int64_t world_size = 0;
  std::int64_t iterations = 1;
  std::int64_t iteration_ms = 0;
  std::int64_t begin_timeout_ms = 0;      // 0: for ever
  std::int64_t reconnect_timeout_ms = 0;  // 0: the library's
  std::int64_t hold_at = -1;              // in this iteration, computes until the file exists
  std::string hold_file;
};

bool parse(int argc, char** argv, Settings& settings) {
  const std::map<std::string, std::string*> texts = {{"address", &settings.address},
                                                     {"job", &settings.job},
                                                     {"policy", &settings.policy},
                                                     {"journal", &settings.journal},
                                                     {"hold_file", &settings.hold_file}};
  const std::map<std::string, std::int64_t*> numbers = {
      {"rank", &settings.rank},
      {"world_size", &settings.world_size},
      {"iterations", &settings.iterations},
      {"iteration_ms", &settings.iteration_ms},
      {"begin_timeout_ms", &settings.begin_timeout_ms},
      {"reconnect_timeout_ms", &settings.reconnect_timeout_ms},
      {"hold_at", &settings.hold_at}};
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::size_t equals = argument.find('=');
    if (equals == std::string::npos) return false;
    const std::string key = argument.substr(0, equals);
    const std::string value = argument.substr(equals + 1);
    if (const auto text = texts.find(key); text != texts.end()) {
      *text->second = value;
    } else if (const auto number = numbers.find(key); number != numbers.end()) {
      *number->second = std::stoll(value);
    } else {
      return false;
    }
  }
  return !settings.address.empty() && !settings.journal.empty();
}

class Journal {
 public:
  explicit Journal(const std::string& path)
      : fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}
  bool usable() const { return fd_ >= 0; }
  void line(const std::string& text) {
    const std::string whole = text + "\n";
    if (write(fd_, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) _exit(1);
  }

 private:
  int fd_;
};

void pause_ms(std::int64_t ms) {
  timespec left{static_cast<time_t>(ms / 1000), static_cast<long>(ms % 1000) * 1'000'000};
  while (nanosleep(&left, &left) != 0) {
  }
}

class Worker {
 public:
  Worker(const Settings& settings, Journal& journal) : settings_(settings), journal_(journal) {}
  ~Worker() {
    syncd_worker_free(worker_);
    syncd_client_close(client_);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  bool run() { return join() && iterate() && leave(); }

 private:
  bool failed(const char* call, syncd_error* error) {
    journal_.line(std::string("error ") + call + " " + syncd_error_name(error) + " " +
                  syncd_error_message(error));
    syncd_error_free(error);
    return false;
  }

  bool join() {
    syncd_client_options options = SYNCD_CLIENT_OPTIONS_INIT;
    options.addresses = settings_.address.c_str();
    options.client_name = "integration-worker";
    options.begin_timeout_ms = settings_.begin_timeout_ms;
    options.reconnect_timeout_ms = settings_.reconnect_timeout_ms;
    syncd_error* error = nullptr;
    if (syncd_client_open(&options, &client_, &error) != SYNCD_OK) return failed("open", error);
    syncd_join_options join = SYNCD_JOIN_OPTIONS_INIT;
    join.job = settings_.job.c_str();
    join.policy = settings_.policy.empty() ? nullptr : settings_.policy.c_str();
    join.rank = static_cast<std::int32_t>(settings_.rank);
    join.world_size = static_cast<std::uint32_t>(settings_.world_size);
    if (syncd_join(client_, &join, &worker_, &error) != SYNCD_OK) return failed("join", error);
    journal_.line("joined " + std::to_string(syncd_worker_rank(worker_)));
    return true;
  }

  bool iterate() {
    for (;;) {
      syncd_step step = SYNCD_STEP_INIT;
      syncd_error* error = nullptr;
      if (syncd_begin(worker_, SYNCD_TIMEOUT_DEFAULT, &step, &error) != SYNCD_OK) {
        return failed("begin", error);
      }
      if ((step.flags & SYNCD_STEP_STOP) != 0) {
        journal_.line("stopped");
        return true;
      }
      journal_.line("granted " + std::to_string(step.iteration) + " " + std::to_string(step.flags) +
                    " " + std::to_string(step.staleness));
      if (step.iteration >= settings_.iterations) return true;
      if (!compute(step.iteration)) return false;
      std::uint32_t flags = 0;
      const syncd_status status =
          syncd_push(worker_, step.iteration, nullptr, SYNCD_TIMEOUT_DEFAULT, &flags, &error);
      if (status == SYNCD_E_STOPPED) {
        syncd_error_free(error);
        journal_.line("stopped");
        return true;
      }
      if (status != SYNCD_OK) return failed("push", error);
      journal_.line("pushed " + std::to_string(step.iteration) + " " + std::to_string(flags));
    }
  }

  bool compute(std::int64_t iteration) {
    pause_ms(settings_.iteration_ms);
    if (iteration != settings_.hold_at) return true;
    journal_.line("holding " + std::to_string(iteration));
    while (access(settings_.hold_file.c_str(), F_OK) != 0) pause_ms(2);
    return true;
  }

  bool leave() {
    syncd_error* error = nullptr;
    if (syncd_leave(worker_, SYNCD_TIMEOUT_DEFAULT, &error) != SYNCD_OK) {
      return failed("leave", error);
    }
    journal_.line("left");
    return true;
  }

  const Settings& settings_;
  Journal& journal_;
  syncd_client* client_ = nullptr;
  syncd_worker* worker_ = nullptr;
};

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  if (!parse(argc, argv, settings)) {
    std::fprintf(stderr, "usage: integration_worker address=A journal=FILE [KEY=VALUE]...\n");
    return 2;
  }
  Journal journal(settings.journal);
  if (!journal.usable()) {
    std::fprintf(stderr, "cannot write %s\n", settings.journal.c_str());
    return 2;
  }
  return Worker(settings, journal).run() ? 0 : 1;
}
