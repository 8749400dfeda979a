// `syncctl top`: a table of a job, or of all jobs, that keeps itself fresh. A thread asks the
// daemon, so that the keys work also while no answer comes.
#include "daemon/tools/ctl/commands.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "daemon/edge/config/duration.h"
#include "daemon/tools/ctl/asking.h"
#include "daemon/tools/ctl/table.h"
#include "daemon/tools/ctl/terminal.h"
#include "daemon/tools/ctl/top_view.h"

namespace syncd::ctl {
namespace {

constexpr Micros kIntervalMinUs = 100'000;
constexpr Micros kIntervalMaxUs = 3'600'000'000;
// Rates are taken over so long at least, so that they do not jump with every sample.
constexpr Micros kRateSpanUs = 5'000'000;

// top reports an answer as missing if it takes so much longer than the interval.
constexpr Micros kLateUs = 2'000'000;
constexpr int kLookMs = 1000;  // how often it is looked whether one is

using Clock = std::chrono::steady_clock;

// All jobs, with one daemon's clock. Those of a shard that cannot be asked are not there, and
// `missing` says so.
bool take_all(DaemonLink& link, TopSample& sample, std::string& missing) {
  bool is_answered = false;
  for (std::uint32_t shard = 0; shard < link.shards(); ++shard) {
    wire::StatusReply status;
    wire::JobsReply jobs;
    if (!link.choose(shard) || !link.read(wire::JobsRequest{}, jobs) ||
        !link.read(wire::StatusRequest{}, status)) {
      missing = missing_shard(link, shard);
      continue;
    }
    is_answered = true;
    sample.now_us = std::max(sample.now_us, status.now_us);
    std::ranges::move(jobs.jobs, std::back_inserter(sample.jobs));
  }
  std::ranges::sort(sample.jobs, {}, &wire::JobStatus::id);
  return is_answered;
}

// Whether there is an answer; if not, the link says why. `missing`: a part that is not there.
bool take_sample(DaemonLink& link, const std::string& job, TopSample& sample,
                 std::string& missing) {
  sample.one_job = !job.empty();
  if (job.empty()) return take_all(link, sample, missing);
  wire::JobsReply jobs;
  if (!link.read(wire::JobsRequest{}, jobs)) return false;
  if (const wire::JobStatus* found = find_job(jobs.jobs, job)) sample.jobs = {*found};
  return read_workers(link, job, sample.workers, sample.now_us);
}

// The samples that are shown: the newest, and older ones for the rates.
class Samples {
 public:
  void add(TopSample sample) {
    // After the daemon's clock or the job has changed, what was before says nothing.
    if (!samples_.empty() && sample.now_us <= samples_.back().now_us) samples_.clear();
    samples_.push_back(std::move(sample));
    while (samples_.size() > 2 && samples_.back().now_us - samples_[1].now_us >= kRateSpanUs) {
      samples_.pop_front();
    }
  }
  void show_in(TopView& view) const {
    view.now = samples_.empty() ? nullptr : &samples_.back();
    view.before = samples_.size() < 2 ? nullptr : &samples_.front();
  }

 private:
  std::deque<TopSample> samples_;
};

// Asks again and again on a thread of its own, which may be stuck in the network.
class Sampler {
 public:
  Sampler(DaemonLink& link, std::string job, Micros interval_us)
      : link_(link), job_(std::move(job)), interval_(interval_us), wake_(eventfd(0, EFD_NONBLOCK)) {
    if (wake_ < 0) throw std::runtime_error(std::string("no eventfd: ") + std::strerror(errno));
    std::thread([this] { run(); }).detach();
  }

  // Readable once there is something to take.
  int wake_fd() const { return wake_; }

  Micros interval_us() const { return interval_.count(); }

  // What has come since; `error` is that of the latest attempt, empty if it was answered, and
  // `missing` what of it was not.
  bool take(std::optional<TopSample>& sample, std::string& error, std::string& missing) {
    std::uint64_t count = 0;
    if (read(wake_, &count, sizeof count) < 0) return false;
    const std::lock_guard lock(mutex_);
    sample = std::exchange(sample_, std::nullopt);
    error = error_;
    missing = missing_;
    return true;
  }

 private:
  [[noreturn]] void run() {
    // They are for the terminal's thread, whose writes they must interrupt.
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);
    Clock::time_point next = Clock::now();
    while (true) {
      TopSample sample;
      std::string missing;
      const bool answered = take_sample(link_, job_, sample, missing);
      {
        const std::lock_guard lock(mutex_);
        missing_ = answered ? missing : std::string();
        if (answered) sample_ = std::move(sample);
        error_ = answered ? std::string() : link_.error();
      }
      const std::uint64_t one = 1;
      if (write(wake_, &one, sizeof one) < 0) std::abort();
      next = std::max(next + interval_, Clock::now());
      std::this_thread::sleep_until(next);
    }
  }

  DaemonLink& link_;
  const std::string job_;
  const std::chrono::microseconds interval_;
  const int wake_;
  std::mutex mutex_;
  std::optional<TopSample> sample_;
  std::string error_;
  std::string missing_;
};

bool wants_colours() {
  const char* no = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && (no == nullptr || *no == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

int show_once(DaemonLink& link, const Options& options, Micros interval_us, TopSort sort) {
  Samples samples;
  std::string missing;
  for (int i = 0; i < 2; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::microseconds(interval_us));
    TopSample sample;
    missing.clear();
    if (!take_sample(link, options.job, sample, missing)) return failed(link);
    samples.add(std::move(sample));
  }
  TopView view;
  samples.show_in(view);
  view.sort = sort;
  view.colours = wants_colours();
  view.width = output_columns();
  // A pipe has room for all; so has a terminal, which scrolls.
  const std::size_t rows = view.now->one_job ? view.now->workers.size() : view.now->jobs.size();
  view.height = rows + 5;
  std::vector<std::string> lines = render_top(view);
  lines.pop_back();  // the keys
  for (const std::string& line : lines) std::cout << line << "\n";
  return missing.empty() ? kExitOk : complain(kExitUnreachable, missing);
}

// What the keys do to what is shown. False: quit.
bool press(const std::string& typed, TopView& view) {
  const auto page = static_cast<std::ptrdiff_t>(std::max<std::size_t>(1, top_rows(view)));
  const std::size_t most = top_scroll_max(view);
  const auto move = [&](std::ptrdiff_t by) {
    const auto at = static_cast<std::ptrdiff_t>(std::min(view.scroll, most)) + by;
    view.scroll = std::min(most, static_cast<std::size_t>(std::max<std::ptrdiff_t>(0, at)));
  };
  for (const TopKey key : parse_keys(typed)) {
    switch (key) {
      case TopKey::kQuit:
        return false;
      case TopKey::kUp:
        move(-1);
        break;
      case TopKey::kDown:
        move(1);
        break;
      case TopKey::kPageUp:
        move(-page);
        break;
      case TopKey::kPageDown:
        move(page);
        break;
      case TopKey::kFirst:
        view.scroll = 0;
        break;
      case TopKey::kLast:
        view.scroll = most;
        break;
      case TopKey::kSort:
        view.sort = next_sort(view.sort);
        break;
    }
  }
  return true;
}

// Until a key or a signal ends it. Returns that signal, or 0.
int show_live(Sampler& sampler, TopSort sort) {
  Samples samples;
  TopView view;
  view.sort = sort;
  view.colours = wants_colours();
  view.notice = "asking the daemon ...";
  Clock::time_point answered = Clock::now();
  std::string error;
  std::string missing;
  Terminal terminal;
  while (true) {
    std::optional<TopSample> sample;
    if (sampler.take(sample, error, missing) && sample) {
      samples.add(std::move(*sample));
      answered = Clock::now();
      view.notice = missing;
    }
    const auto old_us =
        std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - answered).count();
    if (!error.empty() || old_us > sampler.interval_us() + kLateUs) {
      view.notice = "no answer for " + format_duration(old_us) + ", trying again" +
                    (error.empty() ? std::string() : ": " + error);
    }
    samples.show_in(view);
    const ScreenSize size = screen_size();
    view.width = size.width;
    view.height = size.height;
    view.scroll = std::min(view.scroll, top_scroll_max(view));
    terminal.show(render_top(view));

    std::string typed;
    std::vector<int> signals;
    if (!terminal.wait(sampler.wake_fd(), kLookMs, typed, signals)) return SIGHUP;
    for (const int number : signals) {
      if (number == SIGTSTP) {
        terminal.suspend();
      } else if (number == SIGCONT) {
        terminal.resume();
      } else if (number != SIGWINCH) {
        return number;
      }
    }
    if (!press(typed, view)) return 0;
  }
}

}  // namespace

int run_top(const Options& options) {
  Micros interval_us = 0;
  if (!config::parse_duration(options.interval, interval_us) || interval_us < kIntervalMinUs ||
      interval_us > kIntervalMaxUs) {
    return complain(
        kExitUsage,
        fmt::format("--interval {} is no duration from 100ms to 1h, such as 500ms or 2s",
                    options.interval));
  }
  TopSort sort = TopSort::kRank;
  if (!parse_sort(options.sort, sort)) {
    return complain(
        kExitUsage,
        fmt::format("--sort {} is unknown; allowed are rank, clock, waiting, rate, host",
                    options.sort));
  }
  if (!options.once && (isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1)) {
    return complain(kExitUsage,
                    "top needs a terminal; --once prints one frame to a file or a pipe");
  }
  auto link = std::make_unique<DaemonLink>();
  if (const int code = open_link(*link, options); code != kExitOk) return code;
  TopSample first;
  std::string missing;
  if (!take_sample(*link, options.job, first, missing)) return failed(*link);
  if (options.once) return show_once(*link, options, interval_us, sort);
  // The sampler's thread may be asking when the process ends: neither has an owner that could go
  // first.
  auto* sampler = new Sampler(*link.release(), options.job, interval_us);
  const int number = show_live(*sampler, sort);
  // The thread may be anywhere, so nothing of the process is taken down in order.
  if (number == 0) std::_Exit(kExitOk);
  std::signal(number, SIG_DFL);
  std::raise(number);
  std::_Exit(128 + number);
}

}  // namespace syncd::ctl
