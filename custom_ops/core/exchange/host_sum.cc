#include "core/exchange/host_sum.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "core/store/segment.h"

namespace tfhybrid {
namespace {

constexpr int64_t kBytesPerWord = sizeof(int64_t);
constexpr auto kSlowPoll = std::chrono::milliseconds(50);
constexpr auto kGrace = std::chrono::seconds(2);

// A tensor and a stripe begin with a cache line.
int64_t Padded(int64_t bytes) { return RoundUp(bytes, kCacheLine); }

int64_t TotalBytes(const DenseTensors& tensors) {
  int64_t bytes = 0;
  for (const DenseTensor& tensor : tensors) {
    bytes += Padded(tensor.elements * tensor.ElementBytes());
  }
  return bytes;
}

// Bytes of all tensors end to end.
struct Stripe {
  int64_t begin, end;
};

Stripe StripeOf(int64_t rank, int64_t ranks, int64_t total_bytes) {
  const int64_t lines = total_bytes / kCacheLine;
  return {lines * rank / ranks * kCacheLine, lines * (rank + 1) / ranks * kCacheLine};
}

// Calls work(index of the tensor, first element, elements, where they begin) for the parts of
// tensors in a stripe.
template <typename Work>
void ForEachPart(const DenseTensors& tensors, const Stripe& stripe, const Work& work) {
  int64_t offset = 0;
  for (size_t t = 0; t < tensors.size(); ++t) {
    const int64_t element = tensors[t].ElementBytes();
    const int64_t bytes = tensors[t].elements * element;
    const int64_t begin = std::max(offset, stripe.begin);
    const int64_t end = std::min(offset + bytes, stripe.end);
    if (begin < end) work(t, (begin - offset) / element, (end - begin) / element, begin);
    offset += Padded(bytes);
  }
}

// Calls work(T*) with a null pointer of the tensor's type.
template <typename Work>
void ForType(DenseTensor::Type type, const Work& work) {
  if (type == DenseTensor::Type::kFloat) {
    work(static_cast<float*>(nullptr));
  } else {
    work(static_cast<double*>(nullptr));
  }
}

template <typename T>
void Weigh(const T* in, int64_t count, T weight, T* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = in[i] * weight;
}

template <typename T>
void Add(const T* in, int64_t count, T* sum) {
  for (int64_t i = 0; i < count; ++i) sum[i] += in[i];
}

template <typename T>
void Divide(const T* in, int64_t count, T divisor, T* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = in[i] / divisor;
}

// What sums are divided by; 1 where no rank has a sample.
float Divisor(float samples) { return std::max(samples, 1.0F); }

}  // namespace

Result<std::unique_ptr<HostSum>> HostSum::Open(const std::string& path, uint64_t token,
                                               const HostSumRanks& ranks,
                                               std::function<Status(int64_t rank)> check_alive) {
  std::unique_ptr<HostSum> made(new HostSum(path, token, ranks, std::move(check_alive)));
  const auto create = [&](const std::string& name, std::unique_ptr<Mailbox>* box) {
    TFHYBRID_ASSIGN_OR_RETURN(Mailbox created, Mailbox::Create(path + name, token));
    *box = std::make_unique<Mailbox>(std::move(created));
    return Status::Ok();
  };
  const std::string mine = "." + std::to_string(ranks.rank);
  TFHYBRID_RETURN_IF_ERROR(create(mine, &made->brought_));
  TFHYBRID_RETURN_IF_ERROR(create(mine + ".sum", &made->stripe_));
  if (ranks.other_hosts && ranks.rank == 0) {
    TFHYBRID_RETURN_IF_ERROR(create(".all", &made->broadcast_));
  }
  return made;
}

HostSum::HostSum(std::string path, uint64_t token, const HostSumRanks& ranks,
                 std::function<Status(int64_t)> check_alive)
    : path_(std::move(path)),
      token_(token),
      ranks_(ranks),
      check_alive_(std::move(check_alive)),
      brought_by_(static_cast<size_t>(ranks.count)),
      stripe_of_(static_cast<size_t>(ranks.count)) {}

Status HostSum::Sum(uint64_t signature, const DenseTensors& tensors) {
  TFHYBRID_RETURN_IF_ERROR(failure_);
  failure_ = broadcasts_ < sums_
                 ? Status::Error(StatusCode::kFailedPrecondition,
                                 "The leader of this host has not got the sum of dense "
                                 "gradients of all hosts, in step ",
                                 sums_)
                 : TrySum(signature, tensors);
  if (!failure_.ok()) TellFailure();
  return failure_;
}

void HostSum::TellFailure() {
  // That a rank has died, or that this one ends, the others see for themselves.
  if (failure_.code() == StatusCode::kPeerDied || !check_alive_(ranks_.rank).ok()) return;
  for (Mailbox* const box : {brought_.get(), stripe_.get(), broadcast_.get()}) {
    if (box != nullptr) box->PostFailure(failure_.message());
  }
}

Status HostSum::TrySum(uint64_t signature, const DenseTensors& tensors) {
  ++sums_;
  if (!is_leader() || !ranks_.other_hosts) ++broadcasts_;
  TFHYBRID_RETURN_IF_ERROR(Bring(signature, tensors));
  TFHYBRID_ASSIGN_OR_RETURN(const std::vector<const uint8_t*> brought,
                            AwaitAlike(signature, tensors));
  TFHYBRID_RETURN_IF_ERROR(AddStripe(tensors, brought));
  if (ranks_.other_hosts && !is_leader()) return TakeBroadcast(tensors);
  return TakeStripes(tensors);
}

Status HostSum::Bring(uint64_t signature, const DenseTensors& tensors) {
  Result<Span<int64_t>> room = brought_->Write((kCacheLine + TotalBytes(tensors)) / kBytesPerWord);
  if (!room.ok()) return room.status();
  int64_t* const words = room.Take().data();
  words[0] = static_cast<int64_t>(signature);
  uint8_t* const to = reinterpret_cast<uint8_t*>(words) + kCacheLine;
  const float samples = *static_cast<const float*>(tensors.front().in);
  ForEachPart(tensors, {0, TotalBytes(tensors)},
              [&](size_t t, int64_t /*first*/, int64_t count, int64_t begin) {
                ForType(tensors[t].type, [&](auto* typed) {
                  using T = std::remove_pointer_t<decltype(typed)>;
                  Weigh(static_cast<const T*>(tensors[t].in), count,
                        t == 0 ? T{1} : static_cast<T>(samples), reinterpret_cast<T*>(to + begin));
                });
              });
  brought_->Post();
  return Status::Ok();
}

Result<std::vector<const uint8_t*>> HostSum::AwaitAlike(uint64_t signature,
                                                        const DenseTensors& tensors) {
  const int64_t words = (kCacheLine + TotalBytes(tensors)) / kBytesPerWord;
  std::vector<const uint8_t*> brought;
  for (int64_t rank = 0; rank < ranks_.count; ++rank) {
    auto& reader = brought_by_[static_cast<size_t>(rank)];
    TFHYBRID_RETURN_IF_ERROR(AwaitPosted("." + std::to_string(rank), rank, &reader));
    TFHYBRID_ASSIGN_OR_RETURN(const Span<const int64_t> message, reader->Words());
    if (message.size() != words || static_cast<uint64_t>(message[0]) != signature) {
      return AwaitEnd();
    }
    brought.push_back(reinterpret_cast<const uint8_t*>(message.data()) + kCacheLine);
  }
  return brought;
}

Status HostSum::AddStripe(const DenseTensors& tensors, const std::vector<const uint8_t*>& brought) {
  const Stripe stripe = StripeOf(ranks_.rank, ranks_.count, TotalBytes(tensors));
  Result<Span<int64_t>> room = stripe_->Write((stripe.end - stripe.begin) / kBytesPerWord);
  if (!room.ok()) return room.status();
  uint8_t* const to = reinterpret_cast<uint8_t*>(room.Take().data());
  ForEachPart(tensors, stripe, [&](size_t t, int64_t /*first*/, int64_t count, int64_t begin) {
    ForType(tensors[t].type, [&](auto* typed) {
      using T = std::remove_pointer_t<decltype(typed)>;
      T* const sum = reinterpret_cast<T*>(to + (begin - stripe.begin));
      std::memcpy(sum, brought.front() + begin, static_cast<size_t>(count) * sizeof(T));
      for (size_t rank = 1; rank < brought.size(); ++rank) {
        Add(reinterpret_cast<const T*>(brought[rank] + begin), count, sum);
      }
    });
  });
  stripe_->Post();
  return Status::Ok();
}

Status HostSum::TakeStripes(const DenseTensors& tensors) {
  std::vector<const uint8_t*> stripes;
  for (int64_t rank = 0; rank < ranks_.count; ++rank) {
    auto& reader = stripe_of_[static_cast<size_t>(rank)];
    TFHYBRID_RETURN_IF_ERROR(AwaitPosted("." + std::to_string(rank) + ".sum", rank, &reader));
    TFHYBRID_ASSIGN_OR_RETURN(const Span<const int64_t> words, reader->Words());
    stripes.push_back(reinterpret_cast<const uint8_t*>(words.data()));
  }
  const int64_t total = TotalBytes(tensors);
  const auto for_each = [&](const auto& work) {  // (tensor, first element, elements, their sums)
    for (int64_t rank = 0; rank < ranks_.count; ++rank) {
      const Stripe stripe = StripeOf(rank, ranks_.count, total);
      ForEachPart(tensors, stripe, [&](size_t t, int64_t first, int64_t count, int64_t begin) {
        work(t, first, count, stripes[static_cast<size_t>(rank)] + (begin - stripe.begin));
      });
    }
  };
  float samples = 0.0F;
  for_each([&](size_t t, int64_t first, int64_t /*count*/, const uint8_t* sums) {
    if (t == 0 && first == 0) samples = *reinterpret_cast<const float*>(sums);
  });
  const float divisor = ranks_.other_hosts ? 1.0F : Divisor(samples);
  for_each([&](size_t t, int64_t first, int64_t count, const uint8_t* sums) {
    ForType(tensors[t].type, [&](auto* typed) {
      using T = std::remove_pointer_t<decltype(typed)>;
      Divide(reinterpret_cast<const T*>(sums), count, t == 0 ? T{1} : static_cast<T>(divisor),
             static_cast<T*>(tensors[t].out) + first);
    });
  });
  return Status::Ok();
}

Status HostSum::Broadcast(const DenseTensors& tensors) {
  TFHYBRID_RETURN_IF_ERROR(failure_);
  const int64_t total = TotalBytes(tensors);
  Result<Span<int64_t>> room = broadcast_->Write(total / kBytesPerWord);
  if (!room.ok()) {
    failure_ = room.status();
    TellFailure();
    return failure_;
  }
  uint8_t* const to = reinterpret_cast<uint8_t*>(room.Take().data());
  const float divisor = Divisor(*static_cast<const float*>(tensors.front().in));
  ForEachPart(tensors, {0, total}, [&](size_t t, int64_t /*first*/, int64_t count, int64_t begin) {
    ForType(tensors[t].type, [&](auto* typed) {
      using T = std::remove_pointer_t<decltype(typed)>;
      Divide(static_cast<const T*>(tensors[t].in), count, t == 0 ? T{1} : static_cast<T>(divisor),
             reinterpret_cast<T*>(to + begin));
      std::memcpy(tensors[t].out, to + begin, static_cast<size_t>(count) * sizeof(T));
    });
  });
  broadcast_->Post();
  ++broadcasts_;
  return Status::Ok();
}

Status HostSum::TakeBroadcast(const DenseTensors& tensors) {
  TFHYBRID_RETURN_IF_ERROR(AwaitPosted(".all", 0, &broadcast_by_leader_));
  TFHYBRID_ASSIGN_OR_RETURN(const Span<const int64_t> words, broadcast_by_leader_->Words());
  const auto* const from = reinterpret_cast<const uint8_t*>(words.data());
  ForEachPart(tensors, {0, TotalBytes(tensors)},
              [&](size_t t, int64_t /*first*/, int64_t count, int64_t begin) {
                std::memcpy(tensors[t].out, from + begin,
                            static_cast<size_t>(count * tensors[t].ElementBytes()));
              });
  return Status::Ok();
}

Status HostSum::AwaitEnd() const {
  while (true) {
    for (int64_t rank = 0; rank < ranks_.count; ++rank) {
      Status status = check_alive_(rank);
      if (status.ok()) continue;
      // The watch of this rank is about to end it too, and says in what they differ.
      if (status.code() == StatusCode::kPeerDied) std::this_thread::sleep_for(kGrace);
      return status;
    }
    std::this_thread::sleep_for(kSlowPoll);
  }
}

Status HostSum::AwaitPosted(const std::string& name, int64_t rank,
                            std::unique_ptr<MailboxReader>* reader) {
  const auto check_alive = [&] { return check_alive_(rank); };
  if (*reader == nullptr) {
    TFHYBRID_ASSIGN_OR_RETURN(MailboxReader opened,
                              MailboxReader::Await(path_ + name, token_, check_alive));
    *reader = std::make_unique<MailboxReader>(std::move(opened));
  }
  return (*reader)->Wait(sums_, check_alive);
}

}  // namespace tfhybrid
