// The board of a run: see run_board.h. No thread of its own.
#include "reference_trainer/run/run_board.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <stdexcept>

namespace syncd::trainer {

static_assert(std::atomic<std::int64_t>::is_always_lock_free &&
                  std::atomic<WorkerState>::is_always_lock_free &&
                  std::atomic<char>::is_always_lock_free,
              "processes share these, so they must be plain memory");

namespace {
constexpr std::uint64_t kBoardMagic = 0x7379'6e63'626f'7231ULL;
}  // namespace

struct alignas(64) RunBoard::Header {
  std::uint64_t magic;
  BoardConfig config;
  std::atomic<std::int32_t> stop;
  std::atomic<bool> preempted;
  std::atomic<std::int64_t> claimed_in_all;
  std::array<std::atomic<std::int64_t>, kWorkersMax> claimed_by_worker;
};

void BoardText::set(std::string_view text) {
  const std::size_t length = std::min(text.size(), kBytesMax);
  for (std::size_t i = 0; i < length; ++i) bytes_[i].store(text[i], std::memory_order_relaxed);
  length_.store(static_cast<std::uint32_t>(length), std::memory_order_release);
}

std::string BoardText::get() const {
  std::string text(length_.load(std::memory_order_acquire), '\0');
  for (std::size_t i = 0; i < text.size(); ++i) {
    text[i] = bytes_[i].load(std::memory_order_relaxed);
  }
  return text;
}

void set_field(std::span<char> field, std::string_view text, std::string_view what) {
  if (text.size() >= field.size()) {
    throw std::invalid_argument(fmt::format("the {} is too long: {} bytes, {} are allowed", what,
                                            text.size(), field.size() - 1));
  }
  std::fill(field.begin(), field.end(), '\0');
  std::copy(text.begin(), text.end(), field.begin());
}

RunBoard::RunBoard(SharedMemory memory) : memory_(std::move(memory)) {
  header_ = reinterpret_cast<Header*>(memory_.bytes().data());
  slots_ = reinterpret_cast<WorkerSlot*>(memory_.bytes().data() + sizeof(Header));
}

RunBoard RunBoard::create(const BoardConfig& config) {
  const auto workers = static_cast<std::size_t>(config.workload.workers);
  if (config.workload.workers < 1 || config.workload.workers > kWorkersMax) {
    throw std::invalid_argument(
        fmt::format("{} workers; allowed: 1 to {}", config.workload.workers, kWorkersMax));
  }
  SharedMemory memory =
      SharedMemory::create(sizeof(Header) + workers * sizeof(WorkerSlot), "the run's board");
  std::byte* base = memory.bytes().data();
  auto* header = new (base) Header{};
  header->magic = kBoardMagic;
  header->config = config;
  for (std::size_t i = 0; i < workers; ++i) {
    new (base + sizeof(Header) + i * sizeof(WorkerSlot)) WorkerSlot{};
  }
  return RunBoard(std::move(memory));
}

RunBoard RunBoard::attach(int fd) {
  SharedMemory memory = SharedMemory::attach(fd, "the run's board");
  const std::size_t bytes = memory.bytes().size();
  const auto* header = reinterpret_cast<const Header*>(memory.bytes().data());
  if (bytes < sizeof(Header) || header->magic != kBoardMagic ||
      bytes != sizeof(Header) +
                   static_cast<std::size_t>(header->config.workload.workers) * sizeof(WorkerSlot)) {
    throw SharedMemoryError("shared memory for the run's board holds something else");
  }
  return RunBoard(std::move(memory));
}

const BoardConfig& RunBoard::config() const {
  return header_->config;
}
WorkerSlot& RunBoard::slot(int worker) const {
  return slots_[worker];
}

void RunBoard::request_stop(StopLevel level) const {
  const auto wanted = static_cast<std::int32_t>(level);
  std::int32_t current = header_->stop.load();
  while (current < wanted && !header_->stop.compare_exchange_weak(current, wanted)) {
  }
}

StopLevel RunBoard::stop() const {
  return static_cast<StopLevel>(header_->stop.load(std::memory_order_relaxed));
}

void RunBoard::request_preemption() const {
  header_->preempted.store(true);
}

bool RunBoard::is_preempted() const {
  return header_->preempted.load(std::memory_order_relaxed);
}

void RunBoard::add_earlier(int worker, std::int64_t iterations) const {
  claimed(worker).fetch_add(iterations);
  slot(worker).iterations.fetch_add(iterations);
}

std::atomic<std::int64_t>& RunBoard::claimed(int worker) const {
  const bool shared = config().budget == Budget::kShared;
  return shared ? header_->claimed_in_all
                : header_->claimed_by_worker[static_cast<std::size_t>(worker)];
}

bool RunBoard::claim_iteration(int worker) const {
  const bool shared = config().budget == Budget::kShared;
  const std::int64_t limit = config().iterations * (shared ? workers() : 1);
  if (limit == 0) return true;
  std::atomic<std::int64_t>& count = claimed(worker);
  std::int64_t current = count.load();
  while (current < limit) {
    if (count.compare_exchange_weak(current, current + 1)) return true;
  }
  return false;
}

void RunBoard::give_back_iteration(int worker) const {
  claimed(worker).fetch_sub(1);
}

}  // namespace syncd::trainer
