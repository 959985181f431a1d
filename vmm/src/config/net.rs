// SPDX-License-Identifier: Apache-2.0
//! Network interfaces.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::ConfigError;
use super::field::FieldError;
use super::lists;
use super::options::{OptionError, Options, parse_number};
use super::rate::{self, RateConfig};
use crate::devices::virtio::net::passt::{self, Forward};
use crate::devices::virtio::net::stream::Stream;
use crate::devices::virtio::net::tap::{Offloads, Tap};
use crate::devices::virtio::net::{Interface, Link, Mac, vhost};
use crate::field::Field;
use crate::{inherited, keeper, sandbox};

/// Where they are in a configuration.
pub(super) const OPTION: Field = Field::section("net");

/// A name of an interface has less than 16 bytes.
const NAME_MAX: usize = 15;
/// Every link that carries IPv6 takes as much.
const MTU_MIN: u16 = 1280;
/// Ethernet's length, less a header, in whole words: what passt takes.
const MTU_MAX_PASST: u16 = 65520;
/// What Linux needs for the parts of one packet, and what the host's kernel takes of one.
const QUEUE_SIZES: RangeInclusive<u16> = 32..=1024;
const QUEUE_SIZE: u16 = 256;
/// Two for each pair; the host's kernel has as many for a tap, and more.
const QUEUES: RangeInclusive<u16> = 2..=32;
/// Queues of a pair: one in each direction.
const PAIR: u16 = 2;
/// The first descriptor that is none of input, output and errors.
const FD_MIN: i32 = 3;
const MASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);

/// Keys of `--net`, but for those of rates.
const KEYS: [&str; 14] = [
    "tap",
    "fd",
    "forward",
    "ip",
    "mask",
    "mac",
    "mtu",
    "num_queues",
    "queue_size",
    "offload_tso",
    "offload_ufo",
    "offload_csum",
    "vhost",
    "id",
];

/// What is written in the place of a pair: the network is the program of that name.
const PASST: &str = "passt";
/// Between several of one value, as it stands between none of them.
const AND: char = '+';

/// A network interface whose other end is still to be opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetOption {
    /// The tap's name on the host; a new one if neither this nor `fds` is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tap: Option<String>,
    /// A tap's queues, one for each pair, or a socket to a program, that this process was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fds: Option<Vec<i32>>,
    /// The same that came with a request. Then `fds` has as many numbers, of no descriptors: what they are called here is nobody's
    /// business, and something else once they are closed.
    #[serde(skip)]
    handed: Handed,
    /// A program is its network.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    passt: bool,
    /// Ports of the host that lead to the guest, by that program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    forward: Vec<Forward>,
    /// The tap's address on the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ip: Option<Ipv4Addr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mask: Option<Ipv4Addr>,
    /// The guest's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) mac: Option<Mac>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtu: Option<u16>,
    /// In both directions together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    num_queues: Option<u16>,
    /// Of each queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue_size: Option<u16>,
    /// What guest and host leave to each other; all that the other end has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offload_tso: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offload_ufo: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    offload_csum: Option<bool>,
    /// Whether the host's kernel moves the frames of a tap; it does where it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vhost: Option<bool>,
    /// What it is called by whoever asks for it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    #[serde(default, deserialize_with = "RateConfig::of_field", skip_serializing_if = "Option::is_none")]
    rate_limiter_config: Option<RateConfig>,
}

/// Descriptors of this process, as long as anybody has this.
#[derive(Debug, Clone, Default)]
struct Handed(Vec<Arc<OwnedFd>>);

impl PartialEq for Handed {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |handed: &Self| handed.0.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>();
        numbers(self) == numbers(other)
    }
}

impl Eq for Handed {}

/// A network interface whose other end is open and switched on.
#[derive(Debug)]
pub struct NetConfig {
    /// What it is called.
    pub id: Option<String>,
    /// What the guest is told of it.
    pub interface: Interface,
    /// How much it may do in a time, in each direction.
    pub limits: Option<RateConfig>,
    /// What its other end is called on the host.
    pub name: String,
    /// That end.
    pub end: NetEnd,
}

/// The host's end of an interface, and who moves its frames.
#[derive(Debug)]
pub enum NetEnd {
    /// The device's own threads. Of the first pair of queues, and of each other one.
    Thread(Box<dyn Link>, Vec<Box<dyn Link>>),
    /// The host's kernel, by what is open of it. Likewise.
    Kernel((vhost::Opened, Tap), Vec<(vhost::Opened, Tap)>),
}

/// How its owner calls it.
#[derive(Debug, Clone)]
enum Place {
    Name(String),
    Descriptors(Vec<i32>),
    Handed,
    Passt,
    New,
}

impl Place {
    /// What is wrong with it, and what would be right.
    fn wrong(&self, net: Field, what: &str) -> FieldError {
        match self {
            Self::Name(name) => FieldError::of(net.member("tap"), name, what),
            Self::Descriptors(numbers) => FieldError::of(net.member("fds"), &written(numbers), what),
            Self::Handed => FieldError::without_value(net.member("fds"), what),
            Self::Passt => FieldError::without_value(net.member(PASST), what),
            Self::New => FieldError::without_value(net.member("tap"), what),
        }
    }
}

impl NetOption {
    /// Takes the text of one `--net`.
    pub(super) fn parse(text: &str) -> Result<Self, OptionError> {
        let (passt, text) = match text.strip_prefix(PASST) {
            Some("") => (true, None),
            Some(rest) if rest.starts_with(',') => (true, rest.get(1..)),
            _ => (false, Some(text)),
        };
        let keys = [&KEYS, rate::KEYS.as_slice()].concat();
        let options = text.map_or_else(|| Ok(Options::none(OPTION)), |text| Options::parse(OPTION, text, &keys))?;
        let forward = |text: &str| text.split(AND).map(str::parse).collect::<Result<_, _>>();
        let address = |text: &str| text.parse::<Ipv4Addr>().map_err(|_| "must be an IPv4 address as in 192.168.249.1");
        let net = Self {
            tap: options.get("tap").map(str::to_owned),
            fds: options.value("fd", descriptors)?,
            handed: Handed::default(),
            passt,
            forward: options.value("forward", forward)?.unwrap_or_default(),
            ip: options.value("ip", address)?,
            mask: options.value("mask", address)?,
            mac: options.value("mac", str::parse)?,
            mtu: options.value("mtu", |text| number(text).ok_or(MTU))?,
            num_queues: options.value("num_queues", |text| number(text).ok_or(QUEUES_MUST))?,
            queue_size: options.value("queue_size", |text| number(text).ok_or(QUEUE_SIZE_MUST))?,
            offload_tso: options.choice("offload_tso")?,
            offload_ufo: options.choice("offload_ufo")?,
            offload_csum: options.choice("offload_csum")?,
            vhost: options.choice("vhost")?,
            id: options.get("id").map(str::to_owned),
            rate_limiter_config: RateConfig::parse(&options)?,
        };
        net.check_fields().map_err(|error| options.wrong_field(error))?;
        Ok(net)
    }

    /// The same with what was handed over beside it, which takes the place of `fd`.
    pub(crate) fn handed(mut self, descriptors: Vec<OwnedFd>) -> Result<Self, String> {
        const ALONE: &str = "must be absent with a descriptor that comes with the request";
        if descriptors.is_empty() {
            return Ok(self);
        }
        if let Some(numbers) = &self.fds {
            return Err(format!("fds={}: {ALONE}", listed(numbers)));
        }
        self.fds = Some(vec![NOT_A_NUMBER; descriptors.len()]);
        self.handed = Handed(descriptors.into_iter().map(Arc::new).collect());
        self.check().map_err(|error| error.alone())?;
        Ok(self)
    }

    /// Whether its other end is a descriptor, which is one of the process that has read this alone.
    pub(super) const fn is_descriptor(&self) -> bool {
        self.fds.is_some()
    }

    /// Whether its fields have values that they can have.
    pub(super) fn check(&self) -> Result<(), FieldError> {
        self.check_fields()?;
        self.rate_limiter_config.map_or(Ok(()), |limits| limits.check())
    }

    /// What goes together, and what each can be.
    fn check_fields(&self) -> Result<(), FieldError> {
        if let Some(name) = &self.tap {
            let valid = (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
            if !valid || name.contains(['/', ':', '%']) || name == "." || name == ".." {
                return Err(FieldError::new(
                    "tap",
                    name,
                    "must be the name of an interface: 1 to 15 letters and digits",
                ));
            }
        }
        self.check_end()?;
        self.check_queues()?;
        match (self.ip, self.mask) {
            (None, Some(mask)) => Err(FieldError::new("mask", &mask, "must be with ip")),
            (_, Some(mask)) if u32::from(mask).leading_ones() + u32::from(mask).trailing_zeros() != 32 => {
                Err(FieldError::new("mask", &mask, "must be ones and then zeros, as in 255.255.255.0"))
            }
            _ => match self.mtu {
                Some(mtu) if mtu < MTU_MIN => Err(FieldError::new("mtu", &mtu, MTU)),
                Some(mtu) if self.passt && mtu > MTU_MAX_PASST => Err(FieldError::new("mtu", &mtu, MTU_PASST)),
                _ => Ok(()),
            },
        }
    }

    /// That there is one other end, and what that does not have is not asked of it.
    fn check_end(&self) -> Result<(), FieldError> {
        if !self.forward.is_empty() && !self.passt {
            return Err(FieldError::new("forward", &self.text("forward"), "must be with passt"));
        }
        let must = match &self.fds {
            _ if self.passt => "must not be with passt, which needs no tap",
            Some(_) => "must not be with fd: that is its owner's",
            None => return Ok(()),
        };
        let taken = [("tap", self.tap.is_some()), ("ip", self.ip.is_some()), ("mask", self.mask.is_some())];
        if let Some((field, _)) = taken.into_iter().find(|(_, given)| *given) {
            return Err(FieldError::new(field, &self.text(field), must));
        }
        match &self.fds {
            Some(numbers) if self.passt => Err(FieldError::new("fds", &written(numbers), must)),
            Some(numbers) if self.handed.0.is_empty() => check_numbers(numbers),
            _ => Ok(()),
        }
    }

    /// How many queues it has, which is said by its descriptors, too.
    fn check_number(&self) -> Result<(), FieldError> {
        let Some(queues) = self.num_queues else { return Ok(()) };
        let wrong = |must: &str| Err(FieldError::new("num_queues", &queues, must));
        if !QUEUES.contains(&queues) || !queues.is_multiple_of(PAIR) {
            return wrong(QUEUES_MUST);
        }
        if self.passt && queues > PAIR {
            return wrong("must be 2 with passt, which is one connection");
        }
        match &self.fds {
            Some(numbers) if usize::from(queues) != numbers.len() * usize::from(PAIR) => {
                let count = numbers.len();
                wrong(&format!("must be {}, two for each of {count} descriptor(s)", count * usize::from(PAIR)))
            }
            _ => Ok(()),
        }
    }

    /// Pairs of queues.
    fn pairs(&self) -> u16 {
        self.num_queues.unwrap_or(PAIR) / PAIR
    }

    /// Its queues, and what goes through them.
    fn check_queues(&self) -> Result<(), FieldError> {
        self.check_number()?;
        if let Some(size) = self.queue_size
            && !(QUEUE_SIZES.contains(&size) && size.is_power_of_two())
        {
            return Err(FieldError::new("queue_size", &size, QUEUE_SIZE_MUST));
        }
        for (field, wanted) in [("offload_tso", self.offload_tso), ("offload_ufo", self.offload_ufo)] {
            if wanted == Some(true) && self.offload_csum == Some(false) {
                return Err(FieldError::new(field, &true, "must be with offload_csum, which it builds on"));
            }
        }
        if self.vhost == Some(true) && (self.passt || self.rate_limiter_config.is_some()) {
            let must = if self.passt { "must not be with passt, which is no tap" } else { VHOST_MUST };
            return Err(FieldError::new("vhost", &true, must));
        }
        let wanted =
            [("offload_tso", self.offload_tso), ("offload_ufo", self.offload_ufo), ("offload_csum", self.offload_csum)];
        match wanted.into_iter().find(|(_, wanted)| self.passt && *wanted == Some(true)) {
            Some((field, _)) => Err(FieldError::new(field, &true, "must not be with passt, which has no offloads")),
            None => Ok(()),
        }
    }

    fn offloads(&self) -> Offloads {
        let [streams, datagrams, checksums] =
            [self.offload_tso, self.offload_ufo, self.offload_csum].map(|wanted| wanted.unwrap_or(true));
        Offloads { checksums, streams, datagrams }
    }

    fn text(&self, field: &str) -> String {
        let text = |address: Option<Ipv4Addr>| address.map(|address| address.to_string());
        let value = match field {
            "ip" => text(self.ip),
            "mask" => text(self.mask),
            "forward" => {
                let all: Vec<_> = self.forward.iter().map(Forward::to_string).collect();
                Some(all.join(&AND.to_string()))
            }
            _ => self.tap.clone(),
        };
        value.unwrap_or_default()
    }

    /// Opens its other end, and switches it on; `index` others come before it.
    pub(super) fn open(self, index: usize) -> Result<NetConfig, ConfigError> {
        let place = match (&self.tap, &self.fds) {
            _ if self.passt => Place::Passt,
            (_, Some(_)) if !self.handed.0.is_empty() => Place::Handed,
            (_, Some(numbers)) => Place::Descriptors(numbers.clone()),
            (Some(name), None) => Place::Name(name.clone()),
            (None, None) => Place::New,
        };
        let (name, end) = self.end(&place).map_err(|what| ConfigError::Host(place.wrong(OPTION.at(index), &what)))?;
        let mac = self.mac.unwrap_or_else(|| Mac::of(keeper::seed(), 0));
        let interface = Interface { mac, mtu: self.mtu, queue_size: self.queue_size.unwrap_or(QUEUE_SIZE) };
        Ok(NetConfig { id: self.id, interface, limits: self.rate_limiter_config, name, end })
    }

    /// The other end, and what it is called.
    fn end(&self, place: &Place) -> Result<(String, NetEnd), String> {
        let (by_kernel, taps) = match place {
            Place::Descriptors(_) | Place::Handed => match self.inherited(place)? {
                Inherited::Tap(taps) => (self.by_kernel(taps.len())?, taps),
                Inherited::Stream(_) if self.vhost == Some(true) => {
                    return Err("vhost=on: is a socket: must be a tap, or have no vhost".to_owned());
                }
                Inherited::Stream(stream) => return Ok((self.socket_name(), alone(stream))),
            },
            Place::Passt => {
                if sandbox::owner_is_jailed() {
                    return Err(format!("{SERVER_STARTS}: must be fd of a socket to one that runs"));
                }
                let stream = passt::start(&self.forward, self.mtu, keeper::has_restarted())
                    .map_err(|error| error.to_string())?;
                return Ok((PASST.to_owned(), alone(stream)));
            }
            Place::Name(name) => (self.by_kernel(self.pairs().into())?, self.taps(name)?),
            Place::New => (self.by_kernel(self.pairs().into())?, self.taps("")?),
        };
        let mut taps = taps.into_iter().map(|tap| tap.offering(self.offloads()));
        let first = taps.next().ok_or("has no queue")?;
        let name = first.name().to_owned();
        Ok((
            name,
            match by_kernel {
                Some((opened, others)) => NetEnd::Kernel((opened, first), others.into_iter().zip(taps).collect()),
                None => NetEnd::Thread(Box::new(first), taps.map(|tap| Box::new(tap) as Box<dyn Link>).collect()),
            },
        ))
    }

    /// What a socket is called, which has no name.
    fn socket_name(&self) -> String {
        match &self.fds {
            Some(numbers) if self.handed.0.is_empty() => format!("fd={}", written(numbers)),
            _ => "fds".to_owned(),
        }
    }

    /// What came by number, or with a request, by descriptors of this VM's own.
    fn inherited(&self, place: &Place) -> Result<Inherited, String> {
        let (copies, must): (io::Result<Vec<_>>, _) = match place {
            Place::Descriptors(numbers) => {
                (numbers.iter().map(|number| inherited::duplicate(*number)).collect(), INHERITED)
            }
            _ => (self.handed.0.iter().map(|descriptor| descriptor.try_clone()).collect(), HANDED),
        };
        copies.and_then(inherit).map_err(|error| format!("{error}: {must}"))
    }

    /// What the host's kernel moves the frames of a tap with `pairs` by, if it does: of the first pair, and of each other one.
    fn by_kernel(&self, pairs: usize) -> Result<Option<(vhost::Opened, Vec<vhost::Opened>)>, String> {
        let open = || Ok((vhost::Opened::new()?, (1..pairs).map(|_| vhost::Opened::new()).collect::<io::Result<_>>()?));
        match self.vhost {
            Some(false) => Ok(None),
            Some(true) => open().map(Some).map_err(|error| format!("vhost=on: {}", no_vhost(&error))),
            None if self.rate_limiter_config.is_some() => Ok(None),
            None => Ok(open().ok()),
        }
    }

    /// `tap`, to which nothing is to be done.
    fn set_up_before(&self, tap: &Tap) -> Result<(), String> {
        if self.ip.is_some() {
            return Err(format!("cannot be given an address: {SERVER}: must have it, and no ip here"));
        }
        if self.mtu.is_some() {
            return Err(format!("cannot be given a size of packets: {SERVER}: must have it, and no mtu here"));
        }
        if !tap.is_up() {
            return Err(format!("is not switched on: {SERVER}: must exist and be up, as by `ip link set up`"));
        }
        Ok(())
    }

    fn taps(&self, name: &str) -> Result<Vec<Tap>, String> {
        let taps = Tap::open(name, self.pairs()).map_err(|error| cannot_be_opened(&error, self.pairs()))?;
        taps.first().map_or(Ok(()), |tap| self.set_up(tap))?;
        Ok(taps)
    }

    fn set_up(&self, tap: &Tap) -> Result<(), String> {
        if sandbox::owner_is_jailed() {
            return self.set_up_before(tap);
        }
        if let Some(ip) = self.ip {
            let mask = self.mask.unwrap_or(MASK);
            tap.set_address(ip, mask).map_err(|error| format!("cannot be given the address {ip}: {error}"))?;
        }
        if let Some(mtu) = self.mtu {
            tap.set_mtu(mtu).map_err(|error| format!("cannot be given mtu={mtu}: {error}"))?;
        }
        tap.up().map_err(|error| format!("cannot be switched on: {error}"))
    }
}

const SERVER: &str = "a server sets up no interface";
const SERVER_STARTS: &str = "a server starts no program";

const MTU_PASST: &str = "must be at most 65520 with passt";
const MTU: &str = "must be a number of bytes, 1280 to 65535";
const VHOST_MUST: &str = "must not be with limits, which the host's kernel does not keep";
const QUEUES_MUST: &str = "must be an even number of queues, 2 to 32";
const QUEUE_SIZE_MUST: &str = "must be a power of two, 32 to 1024";

fn number(text: &str) -> Option<u16> {
    parse_number(text).and_then(|number| u16::try_from(number).ok())
}

/// What stands for the numbers of descriptors that have come with a request, as with Cloud Hypervisor.
const NOT_A_NUMBER: i32 = -1;

/// Descriptors, one or a list of them.
fn descriptors(text: &str) -> Result<Vec<i32>, String> {
    let number = |text| parse_number(text).and_then(|number| i32::try_from(number).ok());
    let numbers: Option<Vec<_>> = lists::parts(text).and_then(|parts| parts.into_iter().map(number).collect());
    let numbers = numbers.filter(|numbers| numbers.iter().all(|number| *number >= FD_MIN)).ok_or(FD_MUST)?;
    check_numbers(&numbers).map_err(|error| error.must)?;
    Ok(numbers)
}

const FD_MUST: &str = "must be the number of a descriptor, at least 3, or several as in [3,4]";

fn check_numbers(numbers: &[i32]) -> Result<(), FieldError> {
    let most = usize::from(QUEUES.end() / PAIR);
    if !(1..=most).contains(&numbers.len()) {
        return Err(FieldError::new(
            "fds",
            &listed(numbers),
            &format!("must be one descriptor for each pair of queues, 1 to {most}"),
        ));
    }
    if let Some(number) = numbers.iter().find(|number| **number < FD_MIN) {
        return Err(FieldError::new("fds", number, "must be at least 3"));
    }
    let mut others = BTreeSet::new();
    match numbers.iter().find(|number| !others.insert(**number)) {
        Some(number) => Err(FieldError::new("fds", number, "must be another descriptor for each pair of queues")),
        None => Ok(()),
    }
}

fn listed(numbers: &[i32]) -> String {
    let numbers: Vec<_> = numbers.iter().map(i32::to_string).collect();
    format!("[{}]", numbers.join(","))
}

/// The same as on a command line, where one number stands alone.
fn written(numbers: &[i32]) -> String {
    match numbers {
        [number] => number.to_string(),
        several => listed(several),
    }
}

/// What descriptors can be.
enum Inherited {
    Tap(Vec<Tap>),
    Stream(Stream),
}

fn inherit(descriptors: Vec<OwnedFd>) -> io::Result<Inherited> {
    if !descriptors.first().map_or(Ok(false), Stream::is_one)? {
        return Ok(Inherited::Tap(Tap::inherited(descriptors.into_iter().map(File::from).collect())?));
    }
    match <[OwnedFd; 1]>::try_from(descriptors) {
        Ok([socket]) => Ok(Inherited::Stream(Stream::new(socket)?)),
        Err(_) => Err(io::Error::new(io::ErrorKind::InvalidInput, "is a socket, which has one pair of queues")),
    }
}

fn alone(stream: Stream) -> NetEnd {
    NetEnd::Thread(Box::new(stream), Vec::new())
}

const HANDED: &str = "must be a tap with IFF_NO_PI and IFF_VNET_HDR, or a connected stream socket";
const INHERITED: &str = "must be a tap with IFF_NO_PI and IFF_VNET_HDR, or a connected stream socket, that this process was \
                         started with";

fn no_vhost(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "/dev/vhost-net is missing: load the vhost_net module".to_owned(),
        io::ErrorKind::PermissionDenied => {
            "/dev/vhost-net: no permission: must be readable and writable for this user".to_owned()
        }
        _ => format!("/dev/vhost-net cannot be opened: {error}"),
    }
}

fn cannot_be_opened(error: &io::Error, queues: u16) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "/dev/net/tun is missing: load the tun module".to_owned(),
        io::ErrorKind::ResourceBusy => "is in use by another process: must be used by no other".to_owned(),
        io::ErrorKind::PermissionDenied => "no permission: must be a tap that belongs to this user, or be made by \
                                            a user who may (CAP_NET_ADMIN)"
            .to_owned(),
        io::ErrorKind::InvalidInput if queues > 1 => {
            "is another kind of interface: must be a tap with several queues (`ip \
                                                      tuntap add … multi_queue`), or not exist"
                .to_owned()
        }
        io::ErrorKind::InvalidInput => {
            "is another kind of interface: must be a tap with one queue, or not exist".to_owned()
        }
        _ => format!("cannot be opened: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::in_options;

    fn parse(text: &str) -> Result<NetOption, String> {
        NetOption::parse(text).map_err(|error| in_options(|| error.to_string()))
    }

    #[test]
    fn words_and_json_are_the_same() {
        for (text, json) in [
            ("tap=vm0", r#"{"tap": "vm0"}"#),
            ("passt", r#"{"passt": true}"#),
            (
                "passt,forward=2222:22+udp/0.0.0.0/53:53,mtu=1500",
                r#"{"passt": true, "forward": ["2222:22", "udp/0.0.0.0/53:53"], "mtu": 1500}"#,
            ),
            (
                "tap=vm0,queue_size=1024,offload_tso=off,offload_ufo=off,offload_csum=on",
                r#"{"tap": "vm0", "queue_size": 1024, "offload_tso": false, "offload_ufo": false, "offload_csum": true}"#,
            ),
            ("tap=vm0,num_queues=8", r#"{"tap": "vm0", "num_queues": 8}"#),
            ("fd=[7,9],num_queues=4", r#"{"fds": [7, 9], "num_queues": 4}"#),
            ("passt,num_queues=2", r#"{"passt": true, "num_queues": 2}"#),
            ("fd=7,mac=52:54:00:12:34:56,vhost=on", r#"{"fds": [7], "mac": "52:54:00:12:34:56", "vhost": true}"#),
            (
                "tap=vm0,ip=10.0.0.1,mask=255.255.0.0,mtu=9000,id=lan,ops_size=9,ops_refill_time=1",
                r#"{"tap": "vm0", "ip": "10.0.0.1", "mask": "255.255.0.0", "mtu": 9000, "id": "lan",
                    "rate_limiter_config": {"ops": {"size": 9, "refill_time": 1}}}"#,
            ),
        ] {
            let net: NetOption = serde_json::from_str(json).unwrap();
            assert_eq!((net.check(), parse(text)), (Ok(()), Ok(net)), "{text}");
        }
    }

    #[test]
    fn the_documentation_has_these_numbers() {
        let text = include_str!("../../../docs/network.md");
        let mtu = format!("the longest packet of both ends, {MTU_MIN} to {}; {MTU_MAX_PASST} with passt", u16::MAX);
        assert!(text.contains(&mtu), "{mtu}");
        let (least, most) = (QUEUE_SIZES.start(), QUEUE_SIZES.end());
        let size = format!("room of each queue: a power of two, {least} to {most} | {QUEUE_SIZE} |");
        assert!(text.contains(&size), "{size}");
        let (least, most) = (QUEUES.start(), QUEUES.end());
        let queues = format!(
            "queues in both directions together: two for each pair, {least} to {most} | 2, or by the descriptors |"
        );
        assert!(text.contains(&queues), "{queues}");
        assert_eq!(QUEUES_MUST, format!("must be an even number of queues, {least} to {most}"));
        let (least, most) = (QUEUE_SIZES.start(), QUEUE_SIZES.end());
        assert_eq!(QUEUE_SIZE_MUST, format!("must be a power of two, {least} to {most}"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, expected) in [
            ("tap=a/b", "--net tap=a/b: must be the name of an interface: 1 to 15 letters and digits"),
            (
                "tap=sixteen-letters.",
                "--net tap=sixteen-letters.: must be the name of an interface: 1 to 15 letters and digits",
            ),
            ("fd=2", "--net fd=2: must be the number of a descriptor, at least 3, or several as in [3,4]"),
            ("fd=[3,x]", "--net fd=[3,x]: must be the number of a descriptor, at least 3, or several as in [3,4]"),
            ("fd=[3,3]", "--net fd=[3,3]: must be another descriptor for each pair of queues"),
            ("fd=[3,4],num_queues=2", "--net num_queues=2: must be 4, two for each of 2 descriptor(s)"),
            ("fd=3,num_queues=4", "--net num_queues=4: must be 2, two for each of 1 descriptor(s)"),
            ("fd=[3,4],tap=a", "--net tap=a: must not be with fd: that is its owner's"),
            ("passt,fd=[3,4]", "--net fd=[3,4]: must not be with passt, which needs no tap"),
            ("passt,num_queues=4", "--net num_queues=4: must be 2 with passt, which is one connection"),
            ("tap=a,num_queues=3", "--net num_queues=3: must be an even number of queues, 2 to 32"),
            ("tap=a,num_queues=0", "--net num_queues=0: must be an even number of queues, 2 to 32"),
            ("tap=a,num_queues=34", "--net num_queues=34: must be an even number of queues, 2 to 32"),
            ("tap=a,num_queues=x", "--net num_queues=x: must be an even number of queues, 2 to 32"),
            ("fd=3,tap=a", "--net tap=a: must not be with fd: that is its owner's"),
            ("fd=3,ip=1.2.3.4", "--net ip=1.2.3.4: must not be with fd: that is its owner's"),
            ("passt,tap=a", "--net tap=a: must not be with passt, which needs no tap"),
            ("passt,fd=3", "--net fd=3: must not be with passt, which needs no tap"),
            ("passt,mtu=65521", "--net mtu=65521: must be at most 65520 with passt"),
            ("forward=1:2", "--net forward=1:2: must be with passt"),
            (
                "passt,forward=1:2+22",
                "--net forward=1:2+22: must be [udp/][ADDRESS/]PORT:PORT, a port of the host and one of the guest, 1 to \
                 65535, as in 2222:22",
            ),
            (
                "passt=on",
                "--net passt=on: there is no key passt: must be one of tap, fd, forward, ip, mask, mac, mtu, num_queues, queue_size, \
                 offload_tso, offload_ufo, offload_csum, vhost, id, bw_size, bw_one_time_burst, bw_refill_time, ops_size, ops_one_time_burst, ops_refill_time",
            ),
            ("tap=a,ip=1.2.3", "--net ip=1.2.3: must be an IPv4 address as in 192.168.249.1"),
            ("tap=a,mask=255.0.0.0", "--net mask=255.0.0.0: must be with ip"),
            (
                "tap=a,ip=1.2.3.4,mask=255.0.255.0",
                "--net mask=255.0.255.0: must be ones and then zeros, as in 255.255.255.0",
            ),
            (
                "tap=a,mac=x",
                "--net mac=x: must be six bytes as in 52:54:00:12:34:56, the first one even and not all of them 0",
            ),
            ("tap=a,mtu=1279", "--net mtu=1279: must be a number of bytes, 1280 to 65535"),
            ("tap=a,mtu=65536", "--net mtu=65536: must be a number of bytes, 1280 to 65535"),
            ("tap=a,queue_size=100", "--net queue_size=100: must be a power of two, 32 to 1024"),
            ("tap=a,queue_size=16", "--net queue_size=16: must be a power of two, 32 to 1024"),
            ("tap=a,queue_size=65536", "--net queue_size=65536: must be a power of two, 32 to 1024"),
            ("tap=a,offload_tso=yes", "--net offload_tso=yes: must be on or off"),
            (
                "tap=a,offload_ufo=on,offload_csum=off",
                "--net offload_ufo=on: must be with offload_csum, which it builds on",
            ),
            ("passt,vhost=on", "--net vhost=on: must not be with passt, which is no tap"),
            (
                "tap=a,vhost=on,ops_size=9,ops_refill_time=1",
                "--net vhost=on: must not be with limits, which the host's kernel does not keep",
            ),
            ("passt,offload_csum=on", "--net offload_csum=on: must not be with passt, which has no offloads"),
            ("tap=a,bw_size=1", "--net bw_size=SIZE and bw_refill_time=MILLISECONDS: is missing: must be given"),
        ] {
            assert_eq!(parse(text), Err(expected.to_owned()), "{text}");
        }
    }
}
