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
#include "reference_trainer/model/backends.h"
#include "reference_trainer/model/device_model.h"
#include "reference_trainer/model/random.h"

namespace syncd::trainer {
namespace {

// A device wants many images at once.
constexpr std::int32_t evaluated_at_once(Backend backend) {
  return backend == Backend::kCuda ? 256 : 32;
}

class Cnn : public Workload {
 public:
  Cnn(const WorkloadConfig& config, const ImageView& data, const CnnShape& shape)
      : config_(config), data_(data), shape_(shape), layout_(shape) {
    check_samples(config, data.training);
    loss_name_ = fmt::format("cross-entropy on {} held-out images", loss_images());
  }

  std::string_view loss_name() const override { return loss_name_; }
  ParameterLayout layout() const override { return {.parameters = layout_.parameters}; }
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
    return trainer::make_stepper({.config = config_,
                                  .worker = worker,
                                  .images = data_,
                                  .shape = shape_,
                                  .layout = &layout_});
  }

 private:
  std::size_t loss_images() const { return std::min(kCnnLossImagesMax, held_out_samples()); }

  // Of the first held-out images.
  BatchScore score(std::span<const float> parameters, std::size_t samples) const {
    const std::lock_guard lock(mutex_);
    if (!evaluating_) {
      evaluating_ = trainer::make_stepper({.config = {.kind = WorkloadKind::kCnn,
                                                      .batch = evaluated_at_once(config_.backend),
                                                      .backend = config_.backend},
                                           .images = data_,
                                           .shape = shape_,
                                           .layout = &layout_});
    }
    std::copy(parameters.begin(), parameters.end(), evaluating_->replica().begin());
    evaluating_->replica_changed();
    return evaluating_->score(data_.training, samples);
  }

  WorkloadConfig config_;
  ImageView data_;
  CnnShape shape_;
  CnnLayout layout_;
  std::string loss_name_;
  // To evaluate with: making it on a device takes longer than an evaluation.
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Stepper> evaluating_;
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
