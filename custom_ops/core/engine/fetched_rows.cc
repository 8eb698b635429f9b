#include "core/engine/fetched_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/placement/key_handle.h"
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
    // If a pass moved to its next batch meanwhile, rows that it no longer wants may be old.
    if (!fetched->PassesHold()) continue;
    for (const TableFetch& fetch : fetched->tables_) {
      sources.passes->CountKeys(static_cast<int64_t>(fetch.from_passes.size()), fetch.missed);
    }
    return std::shared_ptr<const FetchedRows>(fetched);
  }
}

Status FetchedRows::Run(const std::vector<FeatureRead>& features, int64_t host,
                        const Sources& sources, const ParallelFor& parallel_for) {
  TFHYBRID_RETURN_IF_ERROR(CheckKeyHandles(features, host));
  Plan(features, host, sources.passes, parallel_for);
  if (tables_.empty()) return Status::Ok();
  for (TableFetch& fetch : tables_) TFHYBRID_RETURN_IF_ERROR(TakeSent(sources, &fetch));
  TFHYBRID_RETURN_IF_ERROR(CheckMisses(host, *sources.passes));
  // All owners are asked before one is waited for. In their order, so that two lookups cannot wait
  // for each other.
  std::vector<std::pair<int64_t, OwnerLinks::HeldLink>> asked;
  const int64_t owners = tables_.front().allocation->nodes();
  Status failure;
  for (int64_t owner = 0; owner < owners && failure.ok(); ++owner) {
    const bool wanted = std::any_of(tables_.begin(), tables_.end(), [&](const TableFetch& fetch) {
      return fetch.Asked(owner) > 0;
    });
    if (owner == host || !wanted) continue;
    Result<OwnerLinks::HeldLink> held = sources.links->HoldReads(owner);
    failure = held.ok() ? Ask(owner, held.value().connection) : held.status();
    if (failure.ok()) asked.emplace_back(owner, held.Take());
  }
  if (failure.ok()) failure = CopyFromPasses(*sources.passes);
  for (TableFetch& fetch : tables_) {
    if (!failure.ok() || fetch.Count(host) == 0) continue;
    failure = fetch.table->reader->Lookup(fetch.KeysOf(host), fetch.RowsOf(host),
                                          UnseenKeys{false, false, fetch.MarksOf(host)});
  }
  // Answers are received though one has failed: the next lookup must not find them.
  for (const auto& [owner, held] : asked) {
    const Status received = Receive(owner, held.connection);
    // What is left of an answer must not be taken for the next one.
    if (received.code() == StatusCode::kPeerDied) held.connection->Shut();
    if (failure.ok()) failure = received;
  }
  if (failure.ok()) ClearUnseen();
  return failure.ok() ? CheckVersions(*sources.links) : failure;
}

void FetchedRows::ClearUnseen() {
  for (TableFetch& fetch : tables_) {
    if (!fetch.outside || !fetch.table->unseen_zeros) continue;
    float* row = fetch.rows.get();
    for (const uint8_t has_row : fetch.has_row) {
      if (has_row == 0) std::fill_n(row, fetch.dim(), 0.0f);
      row += fetch.dim();
    }
  }
}

Status FetchedRows::CheckVersions(const OwnerLinks& links) const {
  for (const TableFetch& fetch : tables_) {
    for (size_t owner = 0; owner < fetch.versions.size(); ++owner) {
      if (fetch.Count(static_cast<int64_t>(owner)) == 0) continue;
      if (fetch.versions[owner] + fetch.staleness >= fetch.posted) continue;
      return Status::Error(StatusCode::kDataLoss, "Rows of table '", fetch.table->reader->name(),
                           "' may lack ", fetch.staleness, " updates of ", fetch.posted,
                           ". Received: version ", fetch.versions[owner], " from ",
                           links.NameOf(static_cast<int64_t>(owner)));
    }
  }
  return Status::Ok();
}

Status FetchedRows::TakeSent(const Sources& sources, TableFetch* fetch) const {
  if (!fetch->key_handles || fetch->keys.empty()) return Status::Ok();
  const int64_t ticket = KeyHandle::Of(fetch->keys.front()).ticket;
  const std::string& table = fetch->table->reader->name();
  const int64_t dim = fetch->dim();
  fetch->staleness = sources.received->StalenessOf(fetch->keys);
  if (!sources.received->Expects(ticket, table, fetch->posted)) return Status::Ok();
  for (int64_t owner = 0; owner < fetch->allocation->nodes(); ++owner) {
    if (fetch->Count(owner) == 0) continue;
    TFHYBRID_ASSIGN_OR_RETURN(const ReceivedRows::Rows rows,
                              sources.received->Await(ticket, table, owner, sources.check_alive));
    if (rows.failed || rows.table.dim != dim) return Status::Ok();  // the owner says why
    // Of a batch for training, the owner does not say which keys have a row.
    if (fetch->outside && rows.table.has_row == nullptr) return Status::Ok();
    fetch->versions[static_cast<size_t>(owner)] = rows.table.version;
    float* to = fetch->RowsOf(owner);
    uint8_t* has_row = fetch->MarksOf(owner);
    for (const int64_t key : fetch->KeysOf(owner)) {
      const KeyHandle handle = KeyHandle::Of(key);
      if (handle.ticket != ticket || handle.index >= rows.table.rows) return Status::Ok();
      CopyFloats(rows.table.embeddings + handle.index * dim, dim, to);
      to += dim;
      if (has_row != nullptr) *has_row++ = rows.table.has_row[handle.index];
    }
  }
  fetch->sent = true;
  return Status::Ok();
}

Status FetchedRows::CheckKeyHandles(const std::vector<FeatureRead>& features, int64_t host) {
  for (const FeatureRead& feature : features) {
    if (!feature.key_handles || feature.allocation == nullptr) continue;
    for (const int64_t key : feature.keys) {
      const int64_t owner = KeyHandle::OwnerOf(key);
      if (KeyHandle::Is(key) && owner != host && owner < feature.allocation->nodes()) continue;
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
  for (const TableFetch& fetch : tables_) {
    for (size_t i = 0; fetch.key_handles && i < fetch.keys.size(); ++i) {
      const int64_t ticket = KeyHandle::Of(fetch.keys[i]).ticket;
      if (tickets.empty() || tickets.back() != ticket) tickets.push_back(ticket);
    }
  }
  std::sort(tickets.begin(), tickets.end());
  tickets.erase(std::unique(tickets.begin(), tickets.end()), tickets.end());
  return tickets;
}

std::vector<RowRead> FetchedRows::Reads() const {
  std::vector<RowRead> reads;
  for (const TableFetch& fetch : tables_) {
    if (fetch.staleness == 0 || fetch.keys.empty()) continue;
    const int64_t ticket = KeyHandle::Of(fetch.keys.front()).ticket;
    for (size_t owner = 0; owner < fetch.versions.size(); ++owner) {
      const auto number = static_cast<int64_t>(owner);
      if (fetch.Count(number) == 0) continue;
      reads.push_back(
          {ticket, fetch.table->reader->name(), number, fetch.posted, fetch.versions[owner]});
    }
  }
  return reads;
}

Status FetchedRows::CheckMisses(int64_t host, const RankPasses& passes) const {
  for (const TableFetch& fetch : tables_) {
    const bool refuses = std::any_of(fetch.views.begin(), fetch.views.end(),
                                     [](const auto& view) { return view.pass->refuses; });
    if (!refuses || fetch.missed == 0) continue;
    for (int64_t owner = 0; owner < fetch.allocation->nodes(); ++owner) {
      if (fetch.Count(owner) == 0 || (owner == host && fetch.table->reader->files().empty()))
        continue;
      return Status::Error(
          StatusCode::kInvalidArgument, "A lookup in table '", fetch.table->reader->name(),
          "' wants keys that were announced. Received: ", fetch.missed, " that were not, ",
          fetch.KeysOf(owner)[0], " among them, on ", passes.description());
    }
  }
  return Status::Ok();
}

Status FetchedRows::CopyFromPasses(const RankPasses& passes) {
  for (TableFetch& fetch : tables_) {
    const int64_t owners = fetch.allocation->nodes();
    std::vector<bool> awaited(fetch.views.size() * static_cast<size_t>(owners));
    float* to = fetch.RowsOf(owners);
    uint8_t* has_row = fetch.MarksOf(owners);
    for (const FromPass& from : fetch.from_passes) {
      const size_t source = from.view * static_cast<size_t>(owners) + from.owner;
      if (!awaited[source]) {
        const uint64_t version = fetch.table->posted.load();
        // Owners send nothing of an update that failed.
        const auto check = [&] {
          const TableReader& reader = *fetch.table->reader;
          return reader.Reached(version) ? reader.WaitVersion(version, Status::Ok) : Status::Ok();
        };
        TFHYBRID_RETURN_IF_ERROR(passes.Await(fetch.views[from.view], from.owner, version, check));
        awaited[source] = true;
      }
      fetch.views[from.view].Copy(from.row, from.owner, to);
      to += fetch.dim();
      if (has_row != nullptr) *has_row++ = fetch.views[from.view].HasRow(from.row);
    }
  }
  return Status::Ok();
}

bool FetchedRows::PassesHold() const {
  return std::all_of(tables_.begin(), tables_.end(), [](const TableFetch& fetch) {
    return fetch.from_passes.empty() ||
           std::all_of(fetch.views.begin(), fetch.views.end(),
                       [](const RankPasses::PassView& view) { return view.Holds(); });
  });
}

void FetchedRows::Plan(const std::vector<FeatureRead>& features, int64_t host, RankPasses* passes,
                       const ParallelFor& parallel_for) {
  of_features_.resize(features.size());
  int64_t keys = 0;
  for (size_t f = 0; f < features.size(); ++f) {
    if (features[f].allocation == nullptr) continue;
    keys += features[f].keys.size();
    const auto known = std::find_if(tables_.begin(), tables_.end(), [&](const TableFetch& fetch) {
      return fetch.table == features[f].table;
    });
    of_features_[f].table = static_cast<size_t>(known - tables_.begin());
    if (known == tables_.end()) {
      tables_.emplace_back();
      tables_.back().table = features[f].table;
      tables_.back().allocation = features[f].allocation;
      tables_.back().key_handles = features[f].key_handles;
      tables_.back().outside = features[f].outside;
      tables_.back().posted = features[f].table->posted.load();
      if (features[f].key_handles) {
        tables_.back().versions.resize(static_cast<size_t>(features[f].allocation->nodes()));
      } else {
        tables_.back().views = passes->Of(features[f].table->reader->name());
      }
    }
    tables_[of_features_[f].table].features.push_back(f);
  }
  const auto count = static_cast<int64_t>(tables_.size());
  if (count == 0) return;
  parallel_for(count, kNumberCostNs * (keys / count + 1), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) Number(features, host, &tables_[static_cast<size_t>(p)]);
  });
}

int64_t FetchedRows::SourceOf(int64_t key, int64_t host, TableFetch* fetch) const {
  if (fetch->key_handles) return KeyHandle::OwnerOf(key);
  const int64_t owner = fetch->allocation->OwnerOf(key);
  for (size_t view = 0; view < fetch->views.size(); ++view) {
    const int64_t row = fetch->views[view].Find(key);
    if (row < 0) continue;
    fetch->from_passes.push_back({static_cast<uint32_t>(view), static_cast<uint32_t>(owner), row});
    return fetch->allocation->nodes();
  }
  const bool near = owner == host && fetch->table->reader->files().empty();
  if (!fetch->views.empty() && !near) ++fetch->missed;
  return owner;
}

Span<const int64_t> FetchedRows::DistinctKeys(const std::vector<FeatureRead>& features,
                                              TableFetch* fetch) {
  int64_t max_keys = 0;
  for (const size_t feature : fetch->features) max_keys += features[feature].keys.size();
  const FeatureRead& first = features[fetch->features.front()];
  if (first.numbers == nullptr) fetch->unique.Reset(max_keys);
  for (const size_t feature : fetch->features) {
    const FeatureRead& read = features[feature];
    std::vector<uint32_t>& rows = of_features_[feature].rows;
    rows.resize(static_cast<size_t>(read.keys.size()));
    if (first.numbers == nullptr) {
      fetch->unique.Number(read.keys, rows.data());
    } else {
      std::copy(read.numbers, read.numbers + read.keys.size(), rows.begin());
    }
  }
  return first.numbers == nullptr ? fetch->unique.keys() : first.distinct;
}

void FetchedRows::Number(const std::vector<FeatureRead>& features, int64_t host,
                         TableFetch* fetch) {
  const Span<const int64_t> distinct = DistinctKeys(features, fetch);
  std::vector<uint16_t> owners;
  owners.reserve(static_cast<size_t>(distinct.size()));
  fetch->starts.assign(static_cast<size_t>(fetch->allocation->nodes()) + 2, 0);
  for (const int64_t key : distinct) {
    owners.push_back(static_cast<uint16_t>(SourceOf(key, host, fetch)));
    ++fetch->starts[owners.back() + size_t{1}];
  }
  std::vector<int64_t>& starts = fetch->starts;
  const bool one_owner = std::find(starts.begin(), starts.end(), distinct.size()) != starts.end();
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  if (one_owner) {
    fetch->keys.assign(distinct.begin(), distinct.end());
  } else {
    DivideByOwner(distinct, owners, fetch);
  }
  fetch->rows.reset(new float[fetch->keys.size() * static_cast<size_t>(fetch->dim())]);
  if (fetch->outside) fetch->has_row.resize(fetch->keys.size());
}

void FetchedRows::DivideByOwner(Span<const int64_t> distinct, const std::vector<uint16_t>& owners,
                                TableFetch* fetch) {
  std::vector<int64_t> next(fetch->starts.begin(), fetch->starts.end() - 1);
  std::vector<uint32_t> positions;
  positions.reserve(owners.size());
  fetch->keys.resize(owners.size());
  for (size_t i = 0; i < owners.size(); ++i) {
    const int64_t position = next[owners[i]]++;
    positions.push_back(static_cast<uint32_t>(position));
    fetch->keys[static_cast<size_t>(position)] = distinct[static_cast<int64_t>(i)];
  }
  for (const size_t feature : fetch->features) {
    for (uint32_t& row : of_features_[feature].rows) row = positions[row];
  }
}

Status FetchedRows::Ask(int64_t owner, Connection* connection) const {
  std::vector<AskedKeys> asked;
  asked.reserve(tables_.size());
  for (const TableFetch& fetch : tables_) {
    asked.push_back({fetch.table->reader->name(), fetch.dim(), fetch.posted,
                     fetch.KeysOf(owner).subspan(0, fetch.Asked(owner))});
  }
  const std::vector<int64_t> words = ReadWords(asked);
  std::vector<Span<const int64_t>> pieces = {words};
  for (const AskedKeys& table : asked) pieces.push_back(table.keys);
  // All tables are alike: a lookup takes either key handles or keys.
  const TableFetch& alike = tables_.front();
  const FrameKind keys = alike.outside ? FrameKind::kReadMarked : FrameKind::kRead;
  const FrameKind handles = alike.outside ? FrameKind::kReadMarkedHandles : FrameKind::kReadHandles;
  return connection->Send(alike.key_handles ? handles : keys, pieces);
}

Status FetchedRows::Receive(int64_t owner, Connection* connection) {
  auto head = static_cast<int64_t>(tables_.size());
  int64_t all = 0;
  for (const TableFetch& fetch : tables_) {
    head += fetch.AskedMarks(owner);
    all += WordsOfRows(fetch.Asked(owner), fetch.dim());
  }
  Arrived arrived;
  for (bool done = false; !done;) {
    TFHYBRID_ASSIGN_OR_RETURN(const FrameHeader header, connection->ReceiveHeader());
    const auto kind = static_cast<FrameKind>(header.kind);
    int64_t rows = header.words;
    if (kind == FrameKind::kRows) {
      done = true;
      rows -= head;
      if (rows == all) arrived = {};  // again, if some had come
    }
    const int64_t left = all - arrived.all;
    if (done ? rows != left : kind != FrameKind::kSomeRows || rows > left) {
      return Refuse(header, head + left, connection);
    }
    if (done) TFHYBRID_RETURN_IF_ERROR(ReceiveHead(owner, connection));
    TFHYBRID_RETURN_IF_ERROR(ReceiveRows(owner, rows, &arrived, connection));
    AddTo(Counter::kFetchedBytes, header.words * kWordBytes);
  }
  for (const TableFetch& fetch : tables_) AddTo(Counter::kFetchedRows, fetch.Asked(owner));
  return Status::Ok();
}

Status FetchedRows::ReceiveHead(int64_t owner, Connection* connection) {
  std::vector<uint64_t> versions(tables_.size());
  TFHYBRID_RETURN_IF_ERROR(connection->ReceiveBytes(
      versions.data(), static_cast<int64_t>(versions.size()) * kWordBytes));
  for (size_t p = 0; p < tables_.size(); ++p) {
    if (tables_[p].key_handles && tables_[p].Asked(owner) > 0) {
      tables_[p].versions[static_cast<size_t>(owner)] = versions[p];
    }
  }
  std::vector<uint8_t> marks;
  for (TableFetch& fetch : tables_) {
    const int64_t bytes = fetch.AskedMarks(owner) * kWordBytes;
    if (bytes == 0) continue;
    marks.resize(static_cast<size_t>(bytes));
    TFHYBRID_RETURN_IF_ERROR(connection->ReceiveBytes(marks.data(), bytes));
    std::copy_n(marks.begin(), fetch.Asked(owner), fetch.MarksOf(owner));
  }
  return Status::Ok();
}

Status FetchedRows::ReceiveRows(int64_t owner, int64_t words, Arrived* arrived,
                                Connection* connection) const {
  arrived->all += words;
  while (words > 0) {
    const TableFetch& fetch = tables_[arrived->table];
    const int64_t floats = fetch.Asked(owner) * fetch.dim();
    const int64_t first = 2 * arrived->of_table;
    const int64_t now = std::min(words, (floats + 1) / 2 - arrived->of_table);
    if (now == 0) {
      ++arrived->table;
      arrived->of_table = 0;
      continue;
    }
    const int64_t count = std::min(2 * now, floats - first);
    TFHYBRID_RETURN_IF_ERROR(connection->ReceiveBytes(fetch.RowsOf(owner) + first,
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
  const TableFetch& fetch = tables_[of.table];
  const int64_t dim = fetch.dim();
  for (int64_t key = first; key < last; ++key) CopyFloats(Row(of, fetch, key), dim, out.Next());
  CountKeys(fetch, of.rows.data() + first, of.rows.data() + last);
}

void FetchedRows::CountKeys(const TableFetch& fetch, const uint32_t* begin,
                            const uint32_t* end) const {
  if (!fetch.outside) return;
  AddTo(Counter::kKeysRead, end - begin);
  AddTo(Counter::kUnseenKeys,
        std::count_if(begin, end, [&](uint32_t row) { return fetch.has_row[row] == 0; }));
}

void FetchedRows::LookupBags(size_t feature, const Bags& bags, int64_t first, int64_t last,
                             RowCursor<float> out) const {
  const OfFeature& of = of_features_[feature];
  const TableFetch& fetch = tables_[of.table];
  BagCombiner combiner(bags, first, last, fetch.dim(), out);
  for (int64_t key = bags.splits[first]; key < bags.splits[last]; ++key) {
    combiner.Add(Row(of, fetch, key));
  }
  CountKeys(fetch, of.rows.data() + bags.splits[first], of.rows.data() + bags.splits[last]);
}

}  // namespace tfhybrid
