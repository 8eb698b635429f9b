#include "core/engine/fetched_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/exchange/row_frames.h"
#include "core/placement/place.h"
#include "core/util/copy_floats.h"
#include "core/util/counters.h"

namespace tfhybrid {
namespace {

constexpr int64_t kNumberCostNs = 50;
constexpr int64_t kWordBytes = sizeof(int64_t);

}  // namespace

Result<std::shared_ptr<const FetchedRows>> FetchedRows::Fetch(
    const std::vector<FeatureRead>& features, int64_t host, const Sources& sources,
    const ParallelFor& parallel_for) {
  for (;;) {
    const auto fetched = std::make_shared<FetchedRows>();
    TFHYBRID_RETURN_IF_ERROR(fetched->Run(features, host, sources, parallel_for));
    // Where a pass went on meanwhile, rows that it does not want any longer may be old.
    if (!fetched->PassesHold()) continue;
    for (const Part& part : fetched->parts_) {
      sources.passes->CountKeys(static_cast<int64_t>(part.from_passes.size()), part.missed);
    }
    return std::shared_ptr<const FetchedRows>(fetched);
  }
}

Status FetchedRows::Run(const std::vector<FeatureRead>& features, int64_t host,
                        const Sources& sources, const ParallelFor& parallel_for) {
  TFHYBRID_RETURN_IF_ERROR(CheckPlaces(features, host));
  Plan(features, host, sources.passes, parallel_for);
  if (parts_.empty()) return Status::Ok();
  for (Part& part : parts_) TFHYBRID_RETURN_IF_ERROR(TakeSent(sources, &part));
  TFHYBRID_RETURN_IF_ERROR(CheckMisses(host, *sources.passes));
  // All owners are asked before one is waited for. In their order, so that two lookups cannot wait
  // for each other.
  std::vector<std::pair<int64_t, OwnerLinks::Held>> asked;
  const int64_t owners = parts_.front().allocation->nodes();
  Status failure;
  for (int64_t owner = 0; owner < owners && failure.ok(); ++owner) {
    const bool wanted = std::any_of(parts_.begin(), parts_.end(),
                                    [&](const Part& part) { return part.Asked(owner) > 0; });
    if (owner == host || !wanted) continue;
    Result<OwnerLinks::Held> held = sources.links->HoldReads(owner);
    failure = held.ok() ? Ask(owner, held.value().connection) : held.status();
    if (failure.ok()) asked.emplace_back(owner, held.Take());
  }
  if (failure.ok()) failure = CopyFromPasses(*sources.passes);
  for (const Part& part : parts_) {
    if (!failure.ok() || part.Count(host) == 0) continue;
    failure = part.table->reader->Lookup(part.KeysOf(host), part.RowsOf(host));
  }
  // Answers are received though one has failed: the next lookup must not find them.
  for (const auto& [owner, held] : asked) {
    const Status received = Receive(owner, held.connection);
    // What is left of an answer must not be taken for the next one.
    if (received.code() == StatusCode::kPeerDied) held.connection->Shut();
    if (failure.ok()) failure = received;
  }
  return failure.ok() ? CheckVersions() : failure;
}

Status FetchedRows::CheckVersions() const {
  for (const Part& part : parts_) {
    for (size_t owner = 0; owner < part.versions.size(); ++owner) {
      if (part.Count(static_cast<int64_t>(owner)) == 0) continue;
      if (part.versions[owner] + part.staleness >= part.wanted) continue;
      return Status::Error(StatusCode::kDataLoss, "Rows of table '", part.table->reader->name(),
                           "' may lack ", part.staleness, " updates of ", part.wanted,
                           ". Received: version ", part.versions[owner], " from host ", owner);
    }
  }
  return Status::Ok();
}

Status FetchedRows::TakeSent(const Sources& sources, Part* part) const {
  if (!part->places || part->keys.empty()) return Status::Ok();
  const int64_t ticket = Place::Of(part->keys.front()).ticket;
  const std::string& table = part->table->reader->name();
  const int64_t dim = part->dim();
  part->staleness = sources.received->StalenessOf(part->keys);
  if (!sources.received->Expects(ticket, table, part->wanted)) return Status::Ok();
  for (int64_t owner = 0; owner < part->allocation->nodes(); ++owner) {
    if (part->Count(owner) == 0) continue;
    TFHYBRID_ASSIGN_OR_RETURN(const ReceivedRows::Rows rows,
                              sources.received->Await(ticket, table, owner, sources.check_alive));
    if (rows.failed || rows.table.dim != dim) return Status::Ok();  // the owner says why
    part->versions[static_cast<size_t>(owner)] = rows.table.version;
    float* to = part->RowsOf(owner);
    for (const int64_t key : part->KeysOf(owner)) {
      const Place place = Place::Of(key);
      if (place.ticket != ticket || place.index >= rows.table.rows) return Status::Ok();
      CopyFloats(rows.table.embeddings + place.index * dim, dim, to);
      to += dim;
    }
  }
  part->sent = true;
  return Status::Ok();
}

Status FetchedRows::CheckPlaces(const std::vector<FeatureRead>& features, int64_t host) {
  for (const FeatureRead& feature : features) {
    if (!feature.places || feature.allocation == nullptr) continue;
    for (const int64_t key : feature.keys) {
      const int64_t owner = Place::OwnerOf(key);
      if (Place::Is(key) && owner != host && owner < feature.allocation->nodes()) continue;
      return Status::Error(StatusCode::kInvalidArgument, "A lookup in table '",
                           feature.table->reader->name(),
                           "' wants what data nodes sent, since they send this job's batches. "
                           "Received: ",
                           key);
    }
  }
  return Status::Ok();
}

std::vector<int64_t> FetchedRows::Tickets() const {
  std::vector<int64_t> tickets;
  for (const Part& part : parts_) {
    for (size_t i = 0; part.places && i < part.keys.size(); ++i) {
      const int64_t ticket = Place::Of(part.keys[i]).ticket;
      if (tickets.empty() || tickets.back() != ticket) tickets.push_back(ticket);
    }
  }
  std::sort(tickets.begin(), tickets.end());
  tickets.erase(std::unique(tickets.begin(), tickets.end()), tickets.end());
  return tickets;
}

std::vector<RowRead> FetchedRows::Reads() const {
  std::vector<RowRead> reads;
  for (const Part& part : parts_) {
    if (part.staleness == 0 || part.keys.empty()) continue;
    const int64_t ticket = Place::Of(part.keys.front()).ticket;
    for (size_t owner = 0; owner < part.versions.size(); ++owner) {
      const auto number = static_cast<int64_t>(owner);
      if (part.Count(number) == 0) continue;
      reads.push_back(
          {ticket, part.table->reader->name(), number, part.wanted, part.versions[owner]});
    }
  }
  return reads;
}

Status FetchedRows::CheckMisses(int64_t host, const RankPasses& passes) const {
  for (const Part& part : parts_) {
    const bool refuses = std::any_of(part.views.begin(), part.views.end(),
                                     [](const auto& view) { return view.pass->refuses; });
    if (!refuses || part.missed == 0) continue;
    for (int64_t owner = 0; owner < part.allocation->nodes(); ++owner) {
      if (part.Count(owner) == 0 || (owner == host && part.table->reader->files().empty()))
        continue;
      return Status::Error(
          StatusCode::kInvalidArgument, "A lookup in table '", part.table->reader->name(),
          "' wants keys that were announced. Received: ", part.missed, " that were not, ",
          part.KeysOf(owner)[0], " among them, on ", passes.description());
    }
  }
  return Status::Ok();
}

Status FetchedRows::CopyFromPasses(const RankPasses& passes) const {
  for (const Part& part : parts_) {
    const int64_t owners = part.allocation->nodes();
    std::vector<bool> awaited(part.views.size() * static_cast<size_t>(owners));
    float* to = part.RowsOf(owners);
    for (const FromPass& from : part.from_passes) {
      const size_t place = from.view * static_cast<size_t>(owners) + from.owner;
      if (!awaited[place]) {
        const uint64_t version = part.table->posted.load();
        // Owners send nothing of an update that failed.
        const auto check = [&] {
          const TableReader& reader = *part.table->reader;
          return reader.Reached(version) ? reader.WaitVersion(version, Status::Ok) : Status::Ok();
        };
        TFHYBRID_RETURN_IF_ERROR(passes.Await(part.views[from.view], from.owner, version, check));
        awaited[place] = true;
      }
      part.views[from.view].Copy(from.row, from.owner, to);
      to += part.dim();
    }
  }
  return Status::Ok();
}

bool FetchedRows::PassesHold() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) {
    return part.from_passes.empty() ||
           std::all_of(part.views.begin(), part.views.end(),
                       [](const RankPasses::View& view) { return view.Holds(); });
  });
}

void FetchedRows::Plan(const std::vector<FeatureRead>& features, int64_t host, RankPasses* passes,
                       const ParallelFor& parallel_for) {
  of_features_.resize(features.size());
  int64_t keys = 0;
  for (size_t f = 0; f < features.size(); ++f) {
    if (features[f].allocation == nullptr) continue;
    keys += features[f].keys.size();
    const auto known = std::find_if(parts_.begin(), parts_.end(), [&](const Part& part) {
      return part.table == features[f].table;
    });
    of_features_[f].table = static_cast<size_t>(known - parts_.begin());
    if (known == parts_.end()) {
      parts_.emplace_back();
      parts_.back().table = features[f].table;
      parts_.back().allocation = features[f].allocation;
      parts_.back().places = features[f].places;
      parts_.back().wanted = features[f].table->posted.load();
      if (features[f].places) {
        parts_.back().versions.resize(static_cast<size_t>(features[f].allocation->nodes()));
      } else {
        parts_.back().views = passes->Of(features[f].table->reader->name());
      }
    }
    parts_[of_features_[f].table].features.push_back(f);
  }
  const auto count = static_cast<int64_t>(parts_.size());
  if (count == 0) return;
  parallel_for(count, kNumberCostNs * (keys / count + 1), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) Number(features, host, &parts_[static_cast<size_t>(p)]);
  });
}

int64_t FetchedRows::SourceOf(int64_t key, int64_t host, Part* part) const {
  if (part->places) return Place::OwnerOf(key);
  const int64_t owner = part->allocation->OwnerOf(key);
  for (size_t view = 0; view < part->views.size(); ++view) {
    const int64_t row = part->views[view].Find(key);
    if (row < 0) continue;
    part->from_passes.push_back({static_cast<uint32_t>(view), static_cast<uint32_t>(owner), row});
    return part->allocation->nodes();
  }
  const bool near = owner == host && part->table->reader->files().empty();
  if (!part->views.empty() && !near) ++part->missed;
  return owner;
}

Span<const int64_t> FetchedRows::DistinctKeys(const std::vector<FeatureRead>& features,
                                              Part* part) {
  int64_t most = 0;
  for (const size_t feature : part->features) most += features[feature].keys.size();
  const FeatureRead& first = features[part->features.front()];
  if (first.numbers == nullptr) part->unique.Reset(most);
  for (const size_t feature : part->features) {
    const FeatureRead& read = features[feature];
    std::vector<uint32_t>& rows = of_features_[feature].rows;
    rows.resize(static_cast<size_t>(read.keys.size()));
    if (first.numbers == nullptr) {
      part->unique.Number(read.keys, rows.data());
    } else {
      std::copy(read.numbers, read.numbers + read.keys.size(), rows.begin());
    }
  }
  return first.numbers == nullptr ? part->unique.keys() : first.distinct;
}

void FetchedRows::Number(const std::vector<FeatureRead>& features, int64_t host, Part* part) {
  const Span<const int64_t> distinct = DistinctKeys(features, part);
  std::vector<uint16_t> owners;
  owners.reserve(static_cast<size_t>(distinct.size()));
  part->starts.assign(static_cast<size_t>(part->allocation->nodes()) + 2, 0);
  for (const int64_t key : distinct) {
    owners.push_back(static_cast<uint16_t>(SourceOf(key, host, part)));
    ++part->starts[owners.back() + size_t{1}];
  }
  std::partial_sum(part->starts.begin(), part->starts.end(), part->starts.begin());
  std::vector<int64_t> next(part->starts.begin(), part->starts.end() - 1);
  std::vector<uint32_t> places;
  places.reserve(owners.size());
  part->keys.resize(owners.size());
  for (size_t i = 0; i < owners.size(); ++i) {
    const int64_t place = next[owners[i]]++;
    places.push_back(static_cast<uint32_t>(place));
    part->keys[static_cast<size_t>(place)] = distinct[static_cast<int64_t>(i)];
  }
  for (const size_t feature : part->features) {
    for (uint32_t& row : of_features_[feature].rows) row = places[row];
  }
  part->rows.reset(new float[part->keys.size() * static_cast<size_t>(part->dim())]);
}

Status FetchedRows::Ask(int64_t owner, Connection* connection) const {
  std::vector<AskedKeys> asked;
  for (const Part& part : parts_) {
    asked.push_back({part.table->reader->name(), part.dim(), part.wanted,
                     part.KeysOf(owner).subspan(0, part.Asked(owner))});
  }
  const std::vector<int64_t> words = ReadWords(asked);
  std::vector<Span<const int64_t>> pieces = {words};
  for (const AskedKeys& table : asked) pieces.push_back(table.keys);
  // All parts are of one kind: a lookup takes either places or keys.
  const bool places = parts_.front().places;
  return connection->Send(places ? FrameKind::kReadPlaces : FrameKind::kRead, pieces);
}

Status FetchedRows::Receive(int64_t owner, Connection* connection) {
  const auto versions = static_cast<int64_t>(parts_.size());
  int64_t all = 0;
  for (const Part& part : parts_) all += WordsOfRows(part.Asked(owner), part.dim());
  Arrived arrived;
  for (bool done = false; !done;) {
    TFHYBRID_ASSIGN_OR_RETURN(const FrameHeader header, connection->ReceiveHeader());
    const auto kind = static_cast<FrameKind>(header.kind);
    int64_t rows = header.words;
    if (kind == FrameKind::kRows) {
      done = true;
      rows -= versions;
      if (rows == all) arrived = {};  // again, if some had come
    }
    const int64_t left = all - arrived.all;
    if (done ? rows != left : kind != FrameKind::kSomeRows || rows > left) {
      return Refuse(header, versions + left, connection);
    }
    if (done) {
      std::vector<uint64_t> of_tables(parts_.size());
      TFHYBRID_RETURN_IF_ERROR(connection->ReceiveBytes(of_tables.data(), versions * kWordBytes));
      for (size_t p = 0; p < parts_.size(); ++p) {
        if (parts_[p].places && parts_[p].Asked(owner) > 0) {
          parts_[p].versions[static_cast<size_t>(owner)] = of_tables[p];
        }
      }
    }
    TFHYBRID_RETURN_IF_ERROR(ReceiveRows(owner, rows, &arrived, connection));
    AddTo(Counter::kFetchedBytes, header.words * kWordBytes);
  }
  for (const Part& part : parts_) AddTo(Counter::kFetchedRows, part.Asked(owner));
  return Status::Ok();
}

Status FetchedRows::ReceiveRows(int64_t owner, int64_t words, Arrived* arrived,
                                Connection* connection) const {
  arrived->all += words;
  while (words > 0) {
    const Part& part = parts_[arrived->table];
    const int64_t floats = part.Asked(owner) * part.dim();
    const int64_t first = 2 * arrived->of_table;
    const int64_t now = std::min(words, (floats + 1) / 2 - arrived->of_table);
    if (now == 0) {
      ++arrived->table;
      arrived->of_table = 0;
      continue;
    }
    const int64_t count = std::min(2 * now, floats - first);
    TFHYBRID_RETURN_IF_ERROR(connection->ReceiveBytes(part.RowsOf(owner) + first,
                                                      count * static_cast<int64_t>(sizeof(float))));
    float padding;
    if (count < 2 * now)
      TFHYBRID_RETURN_IF_ERROR(connection->ReceiveBytes(&padding, sizeof(float)));
    arrived->of_table += now;
    words -= now;
  }
  return Status::Ok();
}

Status FetchedRows::Refuse(const FrameHeader& header, int64_t wanted, Connection* connection) {
  const WordBuffer answer = WordBuffer::OfSize(header.words);
  TFHYBRID_RETURN_IF_ERROR(connection->ReceiveBytes(answer.data.get(), header.words * kWordBytes));
  if (header.kind == static_cast<uint32_t>(FrameKind::kFailure)) {
    const Status failure = FailureFrom(answer.words());
    return Status::Error(failure.code(), connection->peer(), ": ", failure.message());
  }
  connection->Shut();
  return Status::Error(StatusCode::kDataLoss, connection->peer(), " was asked for ", wanted,
                       " words of rows. Received: ", header.words);
}

void FetchedRows::Lookup(size_t feature, int64_t first, int64_t last, RowCursor<float> out) const {
  const OfFeature& of = of_features_[feature];
  const Part& part = parts_[of.table];
  const int64_t dim = part.dim();
  for (int64_t key = first; key < last; ++key) CopyFloats(Row(of, part, key), dim, out.Next());
}

void FetchedRows::LookupBags(size_t feature, const Bags& bags, int64_t first, int64_t last,
                             RowCursor<float> out) const {
  const OfFeature& of = of_features_[feature];
  const Part& part = parts_[of.table];
  BagCombiner combiner(bags, first, last, part.dim(), out);
  for (int64_t key = bags.splits[first]; key < bags.splits[last]; ++key) {
    combiner.Add(Row(of, part, key));
  }
}

}  // namespace tfhybrid
