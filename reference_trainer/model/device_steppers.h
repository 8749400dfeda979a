// Steppers on a device, which may be the CPU, of any model (device_model.h): the training data lie
// there, and of a minibatch only the samples' numbers go up and the loss comes down. Everything is
// queued in the device's order; the host waits in loss() and finish() alone, and, before a
// minibatch, until the numbers of the one before were read.
//
// Starting over: every step looks at the words of StopRule. So that what is beyond their reach (a
// library's products of matrices) is little, an interruptible stepper cuts a minibatch into parts
// and these into stages, and ready() lets two of them be queued at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "reference_trainer/model/batch.h"
#include "reference_trainer/model/cnn_batched.h"
#include "reference_trainer/model/device_model.h"
#include "reference_trainer/model/device_steps.h"
#include "reference_trainer/model/mf_batched.h"
#include "reference_trainer/model/svm_batched.h"
#include "reference_trainer/params/device_store_steps.h"

namespace syncd::trainer {

// A part has at most this many samples, which bounds the memory for activations: half a gigabyte
// for C3F2-Net.
inline constexpr std::size_t kDevicePartMax = 512;

// What the minibatch adds to the parameters, for the host: to all of them, or to those of the
// blocks in a list.
template <Index kBlock>
struct StepBySgd {
  SgdRule rule;
  const float* replica;
  const float* gradient;
  float* velocity;    // or null
  const Index* list;  // or null
  float* deltas;

  SYNCD_ON_DEVICE void operator()(Index i) const {
    const std::size_t at =
        list == nullptr ? i : std::size_t{list[i / kBlock]} * kBlock + i % kBlock;
    deltas[i] = sgd_delta(rule, gradient, velocity, replica, at);
  }
};

// Forgets the gradient of the minibatch before.
template <Index kBlock>
struct ClearTouched {
  Touched touched;
  float* gradient;

  SYNCD_TRAINER_DEVICE void operator()(Index i) const {
    if (i >= *touched.count) return;
    float* block = gradient + std::size_t{touched.list[i]} * kBlock;
    for (Index k = 0; k < kBlock; ++k) block[k] = 0;
  }
};

// Tells the host what came of a minibatch.
struct TellOutcome {
  const double* loss;
  const std::uint32_t* stopped;
  double* host_loss;
  std::uint32_t* host_stopped;

  SYNCD_TRAINER_DEVICE void operator()(Index) const {
    *host_loss = *loss;
    *host_stopped = read_word(stopped);
  }
};

template <typename Device, template <typename> class Model>
class SgdStepper final : public Stepper {
 public:
  using Data = typename Model<Device>::Data;

  SgdStepper(Device device, const StepperRequest& request, std::shared_ptr<const Data> data)
      : device_(std::move(device)),
        sampler_(request.config, Model<Device>::training(request)),
        parameters_(checked(Model<Device>::parameters(request))),
        config_(request.config),
        rule_(Model<Device>::rule(request)),
        model_(device_, request, std::move(data), std::min(sampler_.size(), kDevicePartMax)),
        replica_(device_, parameters_),
        gradient_(device_, parameters_),
        velocity_(device_, rule_.momentum != 0 ? parameters_ : 0),
        touched_marks_(device_, kIsSparse ? parameters_ / kBlock : 0),
        touched_list_(device_, kIsSparse ? parameters_ / kBlock : 0),
        touched_count_(device_, 1),
        chosen_(device_, sampler_.size()),
        loss_(device_, 1),
        stopped_(device_, 1),
        words_(device_, kWords),
        host_chosen_(device_, sampler_.size()),
        host_loss_(device_, 1),
        chosen_sent_(device_),
        done_{Mark(device_), Mark(device_)} {
    set_rate(config_.learning_rate);
    device_.clear(replica_.data(), parameters_);
    device_.clear(gradient_.data(), parameters_);
    if (rule_.momentum != 0) device_.clear(velocity_.data(), parameters_);
    if (kIsSparse) device_.clear(touched_marks_.data(), parameters_ / kBlock);
    device_.clear(touched_count_.data(), 1);
    device_.clear(loss_.data(), 1);
    device_.clear(stopped_.data(), 1);
  }

  SgdStepper(const SgdStepper&) = delete;
  SgdStepper& operator=(const SgdStepper&) = delete;

  ~SgdStepper() override {
    drop();
    try {
      device_.synchronize();  // nothing that is still to run may find its memory gone
    } catch (const std::exception&) {
      // The GPU has failed, which the calls before have said.
    }
  }

  DeviceView view() override {
    return {.parameters = parameters_,
            .replica = replica_.data(),
            .gradient = gradient_.data(),
            .velocity = velocity(),
            .rule = rule_,
            .stream = device_.stream()};
  }

  double loss() override {
    wait();
    return Model<Device>::loss(*host_loss_.data(), static_cast<double>(samples()));
  }

  std::uint64_t samples() const override { return sampler_.size(); }

  BatchScore score(std::size_t first, std::size_t count) override {
    BatchScore sum;
    if constexpr (requires { &Model<Device>::score; }) {
      device_.wait(chosen_sent_);
      device_.stop_by({});
      const std::size_t end = first + count;
      while (first < end) {
        const std::size_t taken = std::min({sampler_.size(), kDevicePartMax, end - first});
        std::iota(host_chosen_.data(), host_chosen_.data() + taken, static_cast<Index>(first));
        device_.upload(chosen_.data(), host_chosen_, taken);
        const BatchScore part = model_.score(device_, {.chosen = chosen_.data(),
                                                       .samples = taken,
                                                       .replica = replica_.data(),
                                                       .touched = {}});
        sum.loss_sum += part.loss_sum;
        sum.correct += part.correct;
        first += taken;
      }
    }
    return sum;
  }

  std::uint32_t* resync_flag() override { return words_.data() + kFlag; }

  std::span<float> replica() override {
    if (Device::kSeesHost) return {replica_.data(), parameters_};
    if (!host_replica_) host_replica_.emplace(device_, parameters_);
    return {host_replica_->data(), parameters_};
  }

  void replica_changed() override {
    if (!host_replica_) return;  // the host wrote into the replica itself, or not at all
    device_.upload(replica_.data(), *host_replica_, parameters_);
    device_.synchronize();
  }

  std::span<float> state() override {
    if (!Device::kSeesHost || rule_.momentum == 0) return {};
    return {velocity_.data(), parameters_};
  }

  void interruptible(bool value) override { interruptible_ = value; }

  void start(BatchKey key) override {
    device_.wait(chosen_sent_);
    ++minibatch_;
    queued_ = 0;
    cut_short_ = false;
    sampler_.start(key);
    set_rate(config_.rate_at(key.iteration));  // only for finish(): a store has taken the first
    const std::span<const std::size_t> samples = sampler_.all();
    for (std::size_t i = 0; i < samples.size(); ++i) {
      host_chosen_.data()[i] = static_cast<Index>(samples[i]);
    }
    device_.stop_by({});
    if constexpr (kIsSparse) {
      device_.for_each(device_.known(touched_count_.data(), parameters_ / kBlock),
                       ClearTouched<kBlock>{touched(), gradient_.data()});
      device_.clear(touched_count_.data(), 1);
    } else {
      device_.clear(gradient_.data(), parameters_);
    }
    device_.clear(loss_.data(), 1);
    device_.upload(chosen_.data(), host_chosen_, samples.size());
    device_.mark(chosen_sent_);
    if (!interruptible_) return;  // and no kernel has to look
    device_.stop_by({.flag = words_.seen() + kFlag,
                     .dropped = words_.seen() + kDropped,
                     .stopped = stopped_.data(),
                     .minibatch = minibatch_});
  }

  int micro_batches() const override { return static_cast<int>(parts()) * Model<Device>::kStages; }

  void compute(int step) override {
    if (cut_short_ || is_unwanted()) {
      cut_short_ = true;
      return;
    }
    const auto part = static_cast<std::size_t>(step / Model<Device>::kStages);
    const int stage = step % Model<Device>::kStages;
    const std::size_t first = sampler_.size() * part / parts();
    const std::size_t end = sampler_.size() * (part + 1) / parts();
    model_.compute(device_, stage,
                   {.chosen = chosen_.data() + first,
                    .samples = end - first,
                    .last = part + 1 == parts(),
                    .replica = replica_.data(),
                    .gradient = gradient_.data(),
                    .loss = loss_.data(),
                    .touched = touched()});
    if (step + 1 == micro_batches()) {
      device_.stop_by({});
      device_.for_each(1, TellOutcome{loss_.data(), stopped_.data(), host_loss_.seen(),
                                      words_.seen() + kStopped});
    }
    device_.mark(done_[queued_ % 2]);
    ++queued_;
  }

  bool ready() override {
    return !interruptible_ || queued_ < 2 || device_.passed(done_[queued_ % 2]);
  }

  bool finished() override { return queued_ == 0 || device_.passed(latest()); }

  void drop() override { write_word(words_.data() + kDropped, minibatch_); }

  bool interrupted() override {
    return cut_short_ || (finished() && read_word(words_.data() + kStopped) == minibatch_);
  }

  const Update& finish() override {
    device_.stop_by({});
    if (!deltas_) deltas_.emplace(device_, parameters_);
    const bool all = !kIsSparse || rule_.momentum != 0;
    if (!all) list_touched();
    update_.deltas.resize(all ? parameters_ : update_.indices.size());
    device_.for_each(update_.deltas.size(),
                     StepBySgd<kBlock>{rule_, replica_.data(), gradient_.data(), velocity(),
                                       all ? nullptr : touched_list_.data(), deltas_->data()});
    device_.copy_out(std::span(update_.deltas), deltas_->data());
    update_.loss = loss();
    update_.samples = samples();
    return update_;
  }

 private:
  static constexpr bool kIsSparse = Model<Device>::kTouchedBlock > 0;
  static constexpr Index kBlock = kIsSparse ? Model<Device>::kTouchedBlock : 1;
  using Mark = typename Device::Mark;
  template <typename T>
  using Buffer = typename Device::template Buffer<T>;
  template <typename T>
  using Pinned = typename Device::template Pinned<T>;

  // In words_.
  static constexpr std::size_t kFlag = 0;     // written by whoever advises to start over
  static constexpr std::size_t kDropped = 1;  // by drop()
  static constexpr std::size_t kStopped = 2;  // by the device: the last minibatch it stopped
  static constexpr std::size_t kWords = 3;

  static std::size_t checked(std::size_t parameters) {
    if (parameters > kCountMax) {
      throw std::invalid_argument("the model has more parameters than are counted on a device");
    }
    return parameters;
  }

  std::size_t parts() const {
    const auto all = static_cast<std::size_t>(sampler_.parts());
    const std::size_t fewest = (sampler_.size() + kDevicePartMax - 1) / kDevicePartMax;
    return std::max(fewest, interruptible_ ? all : std::min(all, Device::kPartsLeast));
  }

  // A float where it is multiplied with a velocity, which is one.
  void set_rate(double rate) { rule_.rate = rule_.momentum != 0 ? static_cast<float>(rate) : rate; }

  Touched touched() {
    return {minibatch_, touched_marks_.data(), touched_list_.data(), touched_count_.data()};
  }

  float* velocity() { return rule_.momentum != 0 ? velocity_.data() : nullptr; }

  bool is_unwanted() const {
    return read_word(words_.data() + kFlag) != 0 ||
           read_word(words_.data() + kDropped) == minibatch_;
  }

  const Mark& latest() const { return done_[(queued_ - 1) % 2]; }

  void wait() {
    if (queued_ > 0) device_.wait(latest());
  }

  // Puts the touched blocks in order, and their parameters into the update.
  void list_touched() {
    std::uint32_t count = 0;
    device_.copy_out(std::span(&count, 1), touched_count_.data());
    host_list_.resize(count);
    device_.copy_out(std::span(host_list_), touched_list_.data());
    std::sort(host_list_.begin(), host_list_.end());
    device_.copy_in(touched_list_.data(), std::span<const Index>(host_list_));
    update_.indices.clear();
    for (const Index block : host_list_) {
      for (Index i = 0; i < kBlock; ++i) update_.indices.push_back(block * kBlock + i);
    }
  }

  Device device_;
  BatchSampler sampler_;
  std::size_t parameters_;
  WorkloadConfig config_;
  SgdRule rule_;
  Model<Device> model_;
  Buffer<float> replica_;
  Buffer<float> gradient_;
  Buffer<float> velocity_;
  Buffer<std::uint32_t> touched_marks_;
  Buffer<Index> touched_list_;
  Buffer<std::uint32_t> touched_count_;
  Buffer<Index> chosen_;
  Buffer<double> loss_;
  Buffer<std::uint32_t> stopped_;
  Pinned<std::uint32_t> words_;
  Pinned<Index> host_chosen_;
  Pinned<double> host_loss_;
  Mark chosen_sent_;
  Mark done_[2];  // of the latest two steps
  // For the functions that go through host memory.
  std::optional<Pinned<float>> host_replica_;
  std::optional<Buffer<float>> deltas_;
  std::vector<Index> host_list_;
  Update update_;
  bool interruptible_ = true;
  bool cut_short_ = false;  // compute() has left something out
  std::uint32_t minibatch_ = 0;
  std::size_t queued_ = 0;  // steps of the minibatch at hand
};

// The training data on each device, once for all steppers that train on them at the same time.
// Thread-safe.
template <typename Device, typename Data>
std::shared_ptr<const Data> shared_data(Device& device, const StepperRequest& request,
                                        const void* identity) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, std::weak_ptr<const Data>> known;
  const std::lock_guard lock(mutex);
  std::weak_ptr<const Data>& place = known[{identity, device.gpu()}];
  std::shared_ptr<const Data> data = place.lock();
  if (!data) {
    data = std::make_shared<const Data>(device, request);
    device.synchronize();  // other steppers do not wait for this one's device
    place = data;
  }
  return data;
}

template <template <typename> class Model, typename Device>
std::unique_ptr<Stepper> make_sgd_stepper(Device device, const StepperRequest& request,
                                          const void* identity) {
  auto data = shared_data<Device, typename Model<Device>::Data>(device, request, identity);
  return std::make_unique<SgdStepper<Device, Model>>(std::move(device), request, std::move(data));
}

// The request's workload on a device.
template <typename Device>
std::unique_ptr<Stepper> make_device_stepper(Device device, const StepperRequest& request) {
  switch (request.config.kind) {
    case WorkloadKind::kMf:
      return make_sgd_stepper<MfModel>(std::move(device), request, request.ratings.user.data());
    case WorkloadKind::kSvm:
      return make_sgd_stepper<SvmModel>(std::move(device), request,
                                        request.examples.row_start.data());
    case WorkloadKind::kCnn:
      return make_sgd_stepper<CnnModel>(std::move(device), request, request.images.order.data());
  }
  throw std::invalid_argument("a workload that no device knows");
}

}  // namespace syncd::trainer
