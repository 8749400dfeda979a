// The network for images that the host has, on any device: what the tests hold against the network
// in double. The product's steppers put the same steps together for stored images. Used by one
// thread.
#pragma once

#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "reference_trainer/model/cnn_batched.h"

namespace syncd::trainer::testing {

// The network on one device. Used by one thread at a time.
class CnnBackend {
 public:
  virtual ~CnnBackend() = default;

  // Computes with these parameters from here on. They are read from the caller's memory, which
  // stays as it is until the next call (a device with memory of its own copies them now).
  virtual void parameters(std::span<const float> values) = 0;

  // Adds the gradient of the samples' loss sum to what was added since clear_gradient(). `images`
  // holds labels.size() images of CnnShape::pixels() values; labels are below the classes.
  virtual void clear_gradient() = 0;
  virtual BatchScore train(std::span<const float> images, std::span<const std::uint8_t> labels) = 0;

  // The sum of the gradients, one value per parameter; valid until the next call of train() or
  // clear_gradient().
  virtual std::span<const float> gradient() = 0;

  // The score alone.
  virtual BatchScore evaluate(std::span<const float> images,
                              std::span<const std::uint8_t> labels) = 0;
};

// Throws std::invalid_argument for images that a backend does not take.
inline void check_batch(const CnnShape& shape, std::size_t samples_max,
                        std::span<const float> images, std::span<const std::uint8_t> labels) {
  if (labels.size() <= samples_max && images.size() == labels.size() * shape.pixels()) return;
  throw std::invalid_argument("the network takes up to " + std::to_string(samples_max) +
                              " samples of " + std::to_string(shape.pixels()) + " values; got " +
                              std::to_string(labels.size()) + " samples, " +
                              std::to_string(images.size()) + " values");
}

// The network for images that the host has, on a device with memory of its own.
template <typename Device>
class BatchedCnn : public CnnBackend {
 public:
  // `layout` must be that of `shape`.
  BatchedCnn(Device device, const CnnShape& shape, const CnnLayout& layout, std::size_t samples_max)
      : device_(std::move(device)),
        steps_(device_, shape, layout, samples_max),
        samples_max_(samples_max),
        shape_(shape),
        parameters_(device_, layout.parameters),
        gradient_(device_, layout.parameters),
        images_(device_, samples_max * shape.pixels()),
        labels_(device_, samples_max),
        host_gradient_(layout.parameters),
        host_losses_(samples_max),
        host_correct_(samples_max) {}

  void parameters(std::span<const float> values) override {
    device_.copy_in(parameters_.data(), values);
  }

  void clear_gradient() override { device_.clear(gradient_.data(), host_gradient_.size()); }

  BatchScore train(std::span<const float> images, std::span<const std::uint8_t> labels) override {
    forward(images, labels);
    steps_.backward(device_, parameters_.data(), images_.data(), gradient_.data(), labels.size());
    return score(labels.size());
  }

  BatchScore evaluate(std::span<const float> images,
                      std::span<const std::uint8_t> labels) override {
    forward(images, labels);
    return score(labels.size());
  }

  std::span<const float> gradient() override {
    device_.copy_out(std::span(host_gradient_), gradient_.data());
    return host_gradient_;
  }

 private:
  void forward(std::span<const float> images, std::span<const std::uint8_t> labels) {
    check_batch(shape_, samples_max_, images, labels);
    device_.copy_in(images_.data(), images);
    device_.copy_in(labels_.data(), labels);
    steps_.forward(device_, parameters_.data(), images_.data(), labels_.data(), labels.size());
  }

  BatchScore score(std::size_t samples) {
    device_.copy_out(std::span(host_losses_).first(samples), steps_.losses());
    device_.copy_out(std::span(host_correct_).first(samples), steps_.correct());
    return sum_up(std::span(host_losses_).first(samples), std::span(host_correct_).first(samples));
  }

  Device device_;
  CnnSteps<Device> steps_;
  std::size_t samples_max_;
  CnnShape shape_;
  typename Device::template Buffer<float> parameters_;
  typename Device::template Buffer<float> gradient_;
  typename Device::template Buffer<float> images_;
  typename Device::template Buffer<std::uint8_t> labels_;
  std::vector<float> host_gradient_;
  std::vector<float> host_losses_;
  std::vector<std::uint8_t> host_correct_;
};

}  // namespace syncd::trainer::testing
