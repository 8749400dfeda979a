// C3F2-Net as a workload: see cnn.h. No thread of its own.
#include "reference_trainer/model/cnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

#include "reference_trainer/data/prepare.h"
#include "reference_trainer/model/batch.h"
#include "reference_trainer/model/cnn_backends.h"
#include "reference_trainer/model/device_request.h"

namespace syncd::trainer {
namespace {

// A device wants many images at once.
constexpr std::size_t evaluated_at_once(Backend backend) {
  return backend == Backend::kCuda ? 256 : 32;
}

// Networks to evaluate with. Making one on a device takes longer than an evaluation, so that those
// that are not in use are kept. Thread-safe.
class SpareNetworks {
 public:
  SpareNetworks(Backend backend, const CnnShape& shape) : backend_(backend), shape_(shape) {}

  std::unique_ptr<CnnBackend> take() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) return make_cnn_backend(backend_, shape_, evaluated_at_once(backend_));
    std::unique_ptr<CnnBackend> network = std::move(spare_.back());
    spare_.pop_back();
    return network;
  }

  void give_back(std::unique_ptr<CnnBackend> network) {
    const std::lock_guard lock(mutex_);
    spare_.push_back(std::move(network));
  }

 private:
  Backend backend_;
  CnnShape shape_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<CnnBackend>> spare_;
};

// Images as the network takes them, gathered one by one.
class ImageBatch {
 public:
  ImageBatch(const ImageView& data, std::size_t samples_max)
      : data_(data), normalized_(normal_pixels(data)) {
    pixels_.reserve(samples_max * kImageBytes);
    labels_.reserve(samples_max);
  }

  void clear() {
    pixels_.clear();
    labels_.clear();
  }

  void add(std::size_t sample) {
    const std::span<const std::uint8_t> bytes = data_.pixels(sample);
    for (std::size_t i = 0; i < kImageBytes; ++i) {
      pixels_.push_back(normalized_[i / kImageArea][bytes[i]]);
    }
    labels_.push_back(data_.label(sample));
  }

  std::span<const float> pixels() const { return pixels_; }
  std::span<const std::uint8_t> labels() const { return labels_; }

 private:
  ImageView data_;
  NormalPixels normalized_;
  std::vector<float> pixels_;
  std::vector<std::uint8_t> labels_;
};

class CnnStepper : public Stepper {
 public:
  CnnStepper(const WorkloadConfig& config, const ImageView& data, const CnnShape& shape)
      : config_(config),
        layout_(shape),
        sampler_(config, data.training),
        samples_max_(sampler_.part(sampler_.parts() - 1).size()),  // the last part is the largest
        batch_(data, samples_max_),
        backend_(make_cpu_backend(shape, samples_max_)),
        replica_(layout_.parameters, 0.0F),
        velocity_(layout_.parameters, 0.0F) {
    update_.deltas.resize(layout_.parameters);
    CnnStepper::replica_changed();
  }

  std::span<float> replica() override { return replica_; }
  void replica_changed() override { backend_->parameters(replica_); }
  std::span<float> state() override { return velocity_; }

  void start(BatchKey key) override {
    sampler_.start(key);
    rate_ = static_cast<float>(config_.rate_at(key.iteration));
    backend_->clear_gradient();
    loss_sum_ = 0;
  }

  int micro_batches() const override { return sampler_.parts(); }

  void compute(int part) override {
    batch_.clear();
    for (const std::size_t sample : sampler_.part(part)) batch_.add(sample);
    loss_sum_ += backend_->train(batch_.pixels(), batch_.labels()).loss_sum;
  }

  const Update& finish() override {
    const std::span<const float> gradient = backend_->gradient();
    for (const CnnLayout::Layer& layer : layout_.layers) {
      step(layer.weights, layer.weight_count, config_.weight_decay, gradient);
      step(layer.bias, layer.bias_count, 0, gradient);
    }
    update_.loss = loss_sum_ / static_cast<double>(sampler_.size());
    update_.samples = sampler_.size();
    return update_;
  }

 private:
  void step(std::size_t first, std::size_t count, double decay, std::span<const float> gradient) {
    const auto scale = 1.0F / static_cast<float>(sampler_.size());
    const auto momentum = static_cast<float>(config_.momentum);
    const auto pull = static_cast<float>(decay);
    for (std::size_t i = first; i < first + count; ++i) {
      velocity_[i] = momentum * velocity_[i] + scale * gradient[i] + pull * replica_[i];
      update_.deltas[i] = -rate_ * velocity_[i];
    }
  }

  WorkloadConfig config_;
  CnnLayout layout_;
  BatchSampler sampler_;
  std::size_t samples_max_;
  ImageBatch batch_;
  std::unique_ptr<CnnBackend> backend_;
  std::vector<float> replica_;
  std::vector<float> velocity_;
  float rate_ = 0;
  double loss_sum_ = 0;
  Update update_;
};

class Cnn : public Workload {
 public:
  Cnn(const WorkloadConfig& config, const ImageView& data, const CnnShape& shape)
      : config_(config),
        data_(data),
        shape_(shape),
        layout_(shape),
        networks_(config.backend, shape) {
    if (data.training < static_cast<std::size_t>(config.workers)) {
      throw std::invalid_argument(fmt::format("{} training samples are too few for {} workers",
                                              data.training, config.workers));
    }
    if (shape.pixels() != kImageBytes || shape.classes < class_count(data.format)) {
      throw std::invalid_argument(
          fmt::format("a network for {} values and {} classes does not take images of {} values "
                      "and {} classes",
                      shape.pixels(), shape.classes, kImageBytes, class_count(data.format)));
    }
    loss_name_ = fmt::format("cross-entropy on {} held-out images", loss_images());
  }

  std::string_view name() const override { return "cnn"; }
  std::string_view loss_name() const override { return loss_name_; }
  ParameterLayout layout() const override { return {.parameters = layout_.parameters}; }
  std::size_t training_samples() const override { return data_.training; }
  std::size_t held_out_samples() const override { return data_.size() - data_.training; }

  // He's initialization: normal with variance 2 / fan-in, biases 0; of the last layer, behind which
  // no rectifier stands, 1 / fan-in.
  void initialize(std::span<float> parameters) const override {
    Random random(config_.seed, Stream::kInitialParameters);
    std::fill(parameters.begin(), parameters.end(), 0.0F);
    for (const CnnLayout::Layer& layer : layout_.layers) {
      const double gain = &layer == &layout_.layers.back() ? 1 : 2;
      const double deviation = std::sqrt(gain / static_cast<double>(layer.fan_in));
      for (float& weight : parameters.subspan(layer.weights, layer.weight_count)) {
        weight = static_cast<float>(deviation * random.normal());
      }
    }
  }

  double evaluate(std::span<const float> parameters) const override {
    const std::size_t samples = loss_images();
    return score(parameters, samples).loss_sum / static_cast<double>(samples);
  }

  Assessment assess(std::span<const float> parameters) const override {
    const BatchScore sum = score(parameters, loss_images());
    const auto samples = static_cast<double>(loss_images());
    return {sum.loss_sum / samples, static_cast<double>(sum.correct) / samples};
  }

  std::optional<double> accuracy(std::span<const float> parameters) const override {
    const std::size_t samples = held_out_samples();
    return static_cast<double>(score(parameters, samples).correct) / static_cast<double>(samples);
  }

  // Hop on a ring of four, in its parallel order, learns with momentum 0.9 at 0.008 to 0.032 about
  // equally well and at 0.064 no more; without momentum at 0.04 and at 0.16 no more (generated
  // images). Half of the greatest that it stands.
  double peer_rate_max() const override { return 0.016; }

  std::unique_ptr<Stepper> make_stepper(std::int32_t worker) const override {
    if (config_.backend == Backend::kCuda) {
      return make_cuda_stepper({.config = config_,
                                .worker = worker,
                                .ratings = {},
                                .examples = {},
                                .images = data_,
                                .shape = shape_,
                                .layout = &layout_});
    }
    return std::make_unique<CnnStepper>(config_, data_, shape_);
  }

 private:
  std::size_t loss_images() const { return std::min(kCnnLossImagesMax, held_out_samples()); }

  // Of the first held-out images.
  BatchScore score(std::span<const float> parameters, std::size_t samples) const {
    std::unique_ptr<CnnBackend> backend = networks_.take();
    const std::size_t at_once = evaluated_at_once(config_.backend);
    ImageBatch batch(data_, std::min(at_once, samples));
    backend->parameters(parameters);
    BatchScore sum;
    for (std::size_t first = 0; first < samples; first += at_once) {
      batch.clear();
      const std::size_t last = std::min(first + at_once, samples);
      for (std::size_t i = first; i < last; ++i) batch.add(data_.training + i);
      const BatchScore part = backend->evaluate(batch.pixels(), batch.labels());
      sum.loss_sum += part.loss_sum;
      sum.correct += part.correct;
    }
    networks_.give_back(std::move(backend));
    return sum;
  }

  WorkloadConfig config_;
  ImageView data_;
  CnnShape shape_;
  CnnLayout layout_;
  mutable SpareNetworks networks_;
  std::string loss_name_;
};

}  // namespace

std::unique_ptr<Workload> make_cnn(const WorkloadConfig& config, const SharedArrays& data) {
  CnnShape shape;
  shape.classes = class_count(view_images(data).format);
  return make_cnn(config, data, shape);
}

std::unique_ptr<Workload> make_cnn(const WorkloadConfig& config, const SharedArrays& data,
                                   const CnnShape& shape) {
  return std::make_unique<Cnn>(config, view_images(data), shape);
}

}  // namespace syncd::trainer
